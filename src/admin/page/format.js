// Texts of the page: numbers, times and words. Numbers and dates are British English, so that all charts read alike.

const LOCALE = 'en-GB';

export const number = (amount) => Number(amount).toLocaleString(LOCALE, { maximumFractionDigits: 3 });

export const percent = (share) => `${(share * 100).toLocaleString(LOCALE, { maximumFractionDigits: share < 0.1 ? 1 : 0 })} %`;

/** Formats a share with one decimal, so that it can be compared with a bound. */
export const exactPercent = (share) => `${(share * 100).toLocaleString(LOCALE, { maximumFractionDigits: 1 })} %`;

/** Formats an amount in at most five characters or so. */
export function short(amount) {
  const [divisor, suffix] = amount >= 1e9 ? [1e9, 'G'] : amount >= 1e6 ? [1e6, 'M'] : amount >= 1e4 ? [1e3, 'k'] : [1, ''];
  const value = amount / divisor;
  const digits = value >= 100 || Number.isInteger(value) ? 0 : value >= 1 ? 1 : 2;
  return value.toFixed(digits) + suffix;
}

export function bytes(count) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  const power = Math.min(Math.floor(Math.log10(Math.max(count, 1)) / 3), units.length - 1);
  const value = count / 1000 ** power;
  return `${value.toLocaleString(LOCALE, { maximumFractionDigits: value < 10 && power > 0 ? 1 : 0 })} ${units[power]}`;
}

export function milliseconds(time) {
  if (time === null || time === undefined) {
    return '';
  }
  return time >= 1000 ? `${(time / 1000).toLocaleString(LOCALE, { maximumFractionDigits: 1 })} s`
    : `${time.toLocaleString(LOCALE, { maximumFractionDigits: time < 10 ? 1 : 0 })} ms`;
}

export function duration(seconds) {
  const parts = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  let left = Math.round(seconds);
  const texts = [];
  for (const [unit, length] of parts) {
    if (left >= length && texts.length < 2) {
      texts.push(`${Math.floor(left / length)} ${unit}`);
      left %= length;
    } else if (texts.length > 0) {
      break;
    }
  }
  return texts.join(' ') || '0 s';
}

const format = (at, options) => new Date(at).toLocaleString(LOCALE, options);

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/** Formats the day of a time, such as `5 Sep`, as the report does; a browser has `5 Sept`. */
export const day = (at) => `${new Date(at).getDate()} ${MONTHS[new Date(at).getMonth()]}`;

/** Formats the time of day, such as `09:15`. */
export const clock = (at) => format(at, { hour: '2-digit', minute: '2-digit' });

export const time = (at) => format(at, { hour: '2-digit', minute: '2-digit', second: '2-digit' });

/** Formats a time, with its day unless it is that of `now`. */
export function moment(at, now) {
  const isToday = new Date(at).toDateString() === new Date(now).toDateString();
  return isToday ? clock(at) : `${day(at)} ${clock(at)}`;
}

/** Formats a time with its date. */
export const date = (at) => `${day(at)} ${new Date(at).getFullYear()} ${time(at)}`;

/** Returns the words for the kind of a client. */
export const kind = (name) => (name === 'human' ? 'person' : name.replaceAll('_', ' '));

/** Returns counts by name as one text, the largest first. */
export const byReason = (counts) => Object.entries(counts).sort(([, one], [, other]) => other - one)
  .map(([reason, count]) => `${number(count)} by ${reason}`).join(', ');
