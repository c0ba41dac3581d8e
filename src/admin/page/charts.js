// Charts of the last hour and day, as SVG that stretches; their texts are HTML beside it.

import { h } from './dom.js';

const WIDTH = 1000;
const HEIGHT = 100;

/** Returns a chart of `series`, each with `name`, `style` and `points` of [time, amount], between two times. */
export function chart({ label, series, from, to, unit }) {
  const amounts = series.flatMap(({ points }) => points.map(([, amount]) => amount));
  const top = roundedUp(Math.max(...amounts, 0));
  const x = (time) => (to > from ? ((time - from) / (to - from)) * WIDTH : 0);
  const y = (amount) => HEIGHT - (amount / top) * HEIGHT;
  const path = (points) => points.map(([time, amount], index) => `${index ? 'L' : 'M'}${x(time).toFixed(1)} ${y(amount).toFixed(2)}`).join('');
  const steps = [0, 0.5, 1];
  return h('div', { class: 'chart' },
    h('div', { class: 'scale', 'aria-hidden': 'true' },
      steps.map((step) => h('span', { style: null, class: `at${step * 100}` }, short(top * step)))),
    h('div', { class: 'plot', role: 'img', 'aria-label': `${label}: ${summary(series, unit)}` },
      h('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
        steps.map((step) => h('line', { class: 'grid', x1: 0, x2: WIDTH, y1: y(top * step), y2: y(top * step) })),
        series.map(({ style, points }) => h('path', { class: style, d: path(points) })))),
    h('div', { class: 'times', 'aria-hidden': 'true' }, [from, (from + to) / 2, to].map((time) => h('span', {}, clock(time)))));
}

function summary(series, unit) {
  const last = series.filter(({ points }) => points.length > 0)
    .map(({ name, points }) => `${name} ${short(points[points.length - 1][1])}`);
  return last.length > 0 ? `now ${last.join(', ')} ${unit}` : 'no data yet';
}

/** Returns the next of 1, 2, 5, 10, ... at or above `amount`. */
function roundedUp(amount) {
  if (!(amount > 0)) {
    return 1;
  }
  const power = 10 ** Math.floor(Math.log10(amount));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= amount * 0.9999);
}

/** Formats an amount in at most five characters or so. */
export function short(amount) {
  const [divisor, suffix] = amount >= 1e9 ? [1e9, 'G'] : amount >= 1e6 ? [1e6, 'M'] : amount >= 1e4 ? [1e3, 'k'] : [1, ''];
  const value = amount / divisor;
  const digits = value >= 100 || Number.isInteger(value) ? 0 : value >= 1 ? 1 : 2;
  return value.toFixed(digits) + suffix;
}

function clock(time) {
  return new Date(time).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
}
