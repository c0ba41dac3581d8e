// Axes of the charts: round marks of quantities, and marks of times with their dates.

import { clock, day } from './format.js';

const MINUTE = 60e3;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const TIME_STEPS = [1, 2, 5, 10, 15, 30].map((step) => step * MINUTE)
  .concat([1, 2, 3, 4, 6, 12].map((step) => step * HOUR), [1, 2, 4, 7, 14, 28, 91].map((step) => step * DAY));
const QUANTITY_STEPS = [1, 1.5, 2, 2.5, 3, 4, 5, 8, 10];

/** Returns the marks of a quantity axis from 0 to the first mark at or above `max`, about `count` of them. */
export function quantities(max, count) {
  const least = (max > 0 ? max : 1) / count;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = QUANTITY_STEPS.map((factor) => factor * power).find((found) => found >= least * 0.999) ?? least;
  const steps = Math.max(Math.ceil(max / step - 0.001), 1);
  return Array.from({ length: steps + 1 }, (_, index) => index * step);
}

/**
 * Returns the marks of a time axis, at most `count` or so: `at`, `label`, the `day` where it begins or the axis does, and
 * `isCoarse` for those that a narrow chart keeps.
 */
export function times(from, to, count) {
  const step = TIME_STEPS.find((found) => (to - from) / found <= count) ?? TIME_STEPS.at(-1);
  const marks = [];
  const midnight = new Date(from);
  midnight.setHours(0, 0, 0, 0);
  const days = step < DAY ? 1 : step / DAY;
  // Each day begins anew at its local midnight, so that marks stay round across a change of the clock.
  for (const start = midnight; start.getTime() <= to; start.setDate(start.getDate() + days)) {
    const next = new Date(start);
    next.setDate(next.getDate() + 1);
    for (let at = start.getTime(); at < next.getTime() && at <= to; at += Math.min(step, DAY)) {
      if (at >= from) {
        marks.push(at);
      }
      if (step >= DAY) {
        break;
      }
    }
  }
  return marks.map((at, index) => {
    const isMidnight = new Date(at).getHours() === 0 && new Date(at).getMinutes() === 0;
    const isFirst = index === 0;
    return { at, label: step < DAY ? clock(at) : day(at), day: step < DAY && (isFirst || isMidnight) ? day(at) : null, isCoarse: index % 2 === 0 };
  });
}
