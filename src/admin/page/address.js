// Addresses of clients, as far as the page proposes what to block.

const PRIVATE = /^(127\.|10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.|100\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.|169\.254\.|::1$|f[cd]|fe80)/i;

/** Returns true for an address: a client with a bucket by header or cookie has none to block. */
export const isAddress = (name) => /^[\d.]+$|^[\da-f.]*:[\da-f.]*:[\da-f:.]*$/i.test(name);

/** Returns true for an address of a private network, which may be that of a proxy. */
export const isPrivate = (address) => PRIVATE.test(address);

/** Returns the eight groups of an IPv6 address, without leading zeros. */
function groups(address) {
  const [left, right] = address.split('::').map((part) => part.split(':').filter(Boolean));
  const all = right ? [...left, ...Array(Math.max(8 - left.length - right.length, 0)).fill('0'), ...right] : left;
  return all.map((group) => group.toLowerCase().replace(/^0+(?=.)/, ''));
}

/** Returns the network of an address: IPv4 /24, IPv6 /48. */
export const networkOf = (address) => (address.includes(':')
  ? `${groups(address).slice(0, 3).join(':')}::/48`
  : `${address.split('.').slice(0, 3).join('.')}.0/24`);

/** Returns true if a switch has this one client as its target: an IPv4 address, or the prefix of an IPv6 client. */
export function isClient(target, address) {
  const [network, length] = target.split('/');
  if (!address.includes(':')) {
    return target === `${address}/32`;
  }
  return network.includes(':') && length === '64' && groups(network).slice(0, 4).join(':') === groups(address).slice(0, 4).join(':');
}
