// Nodes of the page: described by `h`, and brought up to date in place by `render`, so that focus and scroll positions
// stay while the data changes. Texts are set as text: nothing that a client sent is read as HTML.

const SVG = 'http://www.w3.org/2000/svg';
const SVG_TAGS = new Set(['svg', 'path', 'line', 'rect']);

/**
 * Returns the description of an element. Children are descriptions, texts or numbers; null is left out. Two attributes
 * are none of the document: `key` names a node among its siblings, and `place` has positions such as `{ left: '10%' }`,
 * which the policy of the page permits to scripts only.
 */
export function h(tag, attributes = {}, ...children) {
  const { key, place, ...rest } = attributes;
  return { tag, key, place, attributes: rest, children: present(children) };
}

const present = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined);

/** Makes the children of `parent` those described. A node with a key stays that of its key. */
export function render(parent, ...described) {
  const children = present(described);
  const wanted = new Set(children.map(({ key }) => key).filter((key) => key !== undefined));
  const keyed = new Map([...parent.childNodes].filter((node) => node.key !== undefined).map((node) => [node.key, node]));
  let next = parent.firstChild;
  for (const child of children) {
    while (next && next.key !== undefined && !wanted.has(next.key)) {
      next = remove(next);
    }
    if (next && isSame(next, child)) {
      update(next, child);
      next = next.nextSibling;
    } else if (child.key !== undefined) {
      const node = keyed.get(child.key) ?? create(child);
      update(node, child);
      parent.insertBefore(node, next);
    } else {
      parent.insertBefore(create(child), next);
      next = next && next.key === undefined ? remove(next) : next;
    }
  }
  while (next) {
    next = remove(next);
  }
}

function remove(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

function isSame(node, child) {
  return typeof child !== 'object'
    ? node.nodeType === Node.TEXT_NODE
    : node.nodeName.toLowerCase() === child.tag && node.key === child.key;
}

function create(child) {
  if (typeof child !== 'object') {
    return document.createTextNode(child);
  }
  const node = SVG_TAGS.has(child.tag) ? document.createElementNS(SVG, child.tag) : document.createElement(child.tag);
  node.key = child.key;
  update(node, child);
  return node;
}

function update(node, child) {
  if (typeof child !== 'object') {
    if (node.data !== String(child)) {
      node.data = child;
    }
    return;
  }
  const wanted = Object.entries(child.attributes).filter(([, value]) => value !== null && value !== undefined && value !== false);
  for (const { name } of [...node.attributes]) {
    if (!wanted.some(([key]) => key === name) && !(name === 'style' && child.place)) {
      node.removeAttribute(name);
    }
  }
  for (const [key, value] of wanted) {
    if (node.getAttribute(key) !== String(value)) {
      node.setAttribute(key, value);
    }
  }
  Object.assign(node.style, child.place);
  render(node, child.children);
}
