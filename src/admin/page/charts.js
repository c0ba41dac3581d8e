// Charts, as SVG that stretches; their texts are HTML beside it.

import { quantities, times } from './axis.js';
import { h } from './dom.js';
import { short } from './format.js';

const WIDTH = 1000;
const HEIGHT = 100;
const LABEL_HEIGHT = 7.5;

/**
 * Returns a chart between two times.
 *
 * `series` have `name`, `style` and `points` of [time, amount]. `levels` are lines across the chart, lowest first, with
 * `amount`, `label` and `style`. `now` marks a time. `text` formats the marks of the quantity axis.
 */
export function chart({ label, series, levels = [], from, to, now = null, style = '', text = short, description = null }) {
  const amounts = series.flatMap(({ points }) => points.map(([, amount]) => amount)).concat(levels.map(({ amount }) => amount));
  const marks = quantities(Math.max(...amounts, 0), style === 'tall' ? 4 : 2);
  const top = marks.at(-1);
  const share = (time) => (to > from ? (time - from) / (to - from) : 0);
  const x = (time) => share(time) * WIDTH;
  const y = (amount) => HEIGHT - (amount / top) * HEIGHT;
  const path = (points) => points.map(([time, amount], index) => `${index ? 'L' : 'M'}${x(time).toFixed(1)} ${y(amount).toFixed(2)}`).join('');
  const across = (amount, lineStyle) => h('line', { class: lineStyle, x1: 0, x2: WIDTH, y1: y(amount), y2: y(amount) });
  const dates = times(from, to, 8);
  const down = (time, lineStyle) => h('line', { class: lineStyle, x1: x(time), x2: x(time), y1: 0, y2: HEIGHT });
  return h('div', { class: `chart ${style}${levels.length > 0 ? ' leveled' : ''}` },
    h('div', { class: 'scale', 'aria-hidden': 'true' },
      marks.map((mark) => h('span', { place: { bottom: `${(mark / top) * 100}%` } }, text(mark)))),
    h('div', { class: 'plot', role: 'img', 'aria-label': `${label}: ${description ?? summary(series, text)}` },
      h('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
        marks.map((mark) => across(mark, 'grid')),
        dates.map(({ at }) => down(at, 'grid')),
        now === null ? null : down(now, 'now'),
        levels.map(({ amount, style: levelStyle }) => across(amount, levelStyle)),
        series.map(({ style: lineStyle, points }) => h('path', { class: lineStyle, d: path(points) })))),
    h('div', { class: 'levels', 'aria-hidden': 'true' }, labels(levels, top)),
    h('div', { class: 'times', 'aria-hidden': 'true' }, dates.map(({ at, label: mark, day, isCoarse }) => h('span', {
      class: isCoarse ? null : 'fine',
      place: { left: `${share(at) * 100}%` },
    }, mark, day ? h('b', {}, day) : null))));
}

/** Returns the labels of levels. A label is moved up if it would overlap the one below it. */
function labels(levels, top) {
  let least = 0;
  return levels.map(({ amount, label }) => {
    const bottom = Math.max(least, (amount / top) * 100);
    least = bottom + LABEL_HEIGHT;
    return h('span', { place: { bottom: `${bottom}%` } }, label);
  });
}

function summary(series, text) {
  const last = series.filter(({ points }) => points.length > 0).map(({ name, points }) => `${name} ${text(points.at(-1)[1])}`);
  return last.length > 0 ? `now ${last.join(', ')}` : 'no data yet';
}

/** Returns the key of a chart. */
export const key = (series) => h('p', { class: 'key' },
  series.map(({ name, style }) => h('span', {}, h('i', { class: style }), name)));
