// Quotas: usage of the window against its limit, tiers and pace, as in the report of `tidegate replay`.

import { chart, key } from './charts.js';
import { h } from './dom.js';
import { duration, exactPercent, moment, number, percent } from './format.js';
import { usageOf } from './samples.js';
import { table } from './table.js';

/** Returns the span of the chart: the window, or what a sliding window has counted. */
function windowOf(quota, state) {
  const now = Date.parse(state.time);
  if (quota.sliding_s !== null) {
    return { from: now - quota.sliding_s * 1000, to: now, now };
  }
  const [from, to] = [Date.parse(quota.window_start), Date.parse(quota.window_end)];
  return { from, to: Math.max(to, from + 1000), now };
}

/** Returns the units that an even pace would have used by now; null for a sliding window, which has no pace. */
function evenPace(quota, { from, to, now }) {
  return quota.sliding_s === null ? (quota.limit * Math.min(Math.max(now - from, 0), to - from)) / (to - from) : null;
}

/** Returns each usage at which tiers begin, lowest first, with the classes and shares that they refuse. */
function tierLevels(quota) {
  const levels = new Map();
  for (const { class: name, tiers } of quota.classes) {
    for (const { above, shed } of tiers) {
      levels.set(above, [...(levels.get(above) ?? []), `${name} ${percent(shed)}`]);
    }
  }
  return [...levels].sort(([one], [other]) => one - other).map(([amount, names]) => ({ amount, names: names.join(', ') }));
}

function quotaChart(quota, state) {
  const span = windowOf(quota, state);
  const { from, to, now } = span;
  const usage = usageOf(quota.name, from, Math.min(now, to));
  const first = usage[0]?.at ?? now;
  // A window begins at 0; if the gateway started later, what it used before is not known.
  const begin = quota.sliding_s === null && first - from < (to - from) / 50 ? [[from, 0]] : [];
  const tiers = tierLevels(quota);
  const drawn = tiers.filter(({ amount }) => amount > 0);
  const levels = [...drawn.map(({ amount, names }) => ({ amount, label: names, style: 'tier' })),
    { amount: quota.limit, label: `limit ${number(quota.limit)}`, style: 'limit' }].sort((one, other) => one.amount - other.amount);
  const series = [{ name: 'units used', style: 'used', points: [...begin, ...usage.map(({ at, used }) => [at, used])] }];
  if (quota.sliding_s === null) {
    series.unshift({ name: 'an even pace', style: 'even', points: [[from, 0], [to, quota.limit]] });
  }
  if (quota.pacing) {
    series.unshift({ name: 'the plan', style: 'plan', points: usage.filter(({ planned }) => planned !== null).map(({ at, planned }) => [at, planned]) });
  }
  const always = tiers.filter(({ amount }) => amount === 0).map(({ names }) => names).join(', ');
  const texts = drawn.map(({ amount, names }) => `${names} from ${number(amount)}`).join('; ');
  const tierKey = drawn.length > 0 ? [{ name: 'tiers: above the line, this share of the class is refused', style: 'tier' }] : [];
  const description = `${number(quota.used)} of ${number(quota.limit)} units used${texts ? `; tiers refuse ${texts}` : ''}`;
  return [
    chart({ label: `Usage of ${quota.name}`, series, levels, from, to, now, style: 'tall', description }),
    key([...[...series].reverse(), ...tierKey, { name: 'limit', style: 'limit' }]),
    texts ? h('p', { class: 'key below' }, `Refused: ${texts}.`) : null,
    always ? h('p', { class: 'key' }, `Refused from the first unit on: ${always}.`) : null,
  ];
}

function gauge(quota, even) {
  const share = (units) => Math.min(units / Math.max(quota.limit, 1e-9), 1) * 1000;
  const [used, reserved] = [share(quota.used), share(quota.used + quota.reserved)];
  const mark = (units, style) => h('line', { class: style, x1: share(units), x2: share(units), y1: 0, y2: 28, 'stroke-width': 4 });
  return h('svg', { class: 'gauge', viewBox: '0 0 1000 28', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    h('rect', { class: 'track', x: 0, y: 6, width: 1000, height: 16 }),
    h('rect', { class: 'reserved', x: 0, y: 6, width: reserved, height: 16 }),
    h('rect', { class: quota.remaining > 0 ? 'used' : 'over', x: 0, y: 6, width: used, height: 16 }),
    even === null ? null : mark(even, 'even'),
    quota.pacing ? mark(quota.pacing.planned, 'plan') : null);
}

function card(quota, state) {
  const even = evenPace(quota, windowOf(quota, state));
  const share = quota.limit > 0 ? quota.used / quota.limit : 1;
  const notes = [
    quota.closed_until ? `Closed until ${moment(quota.closed_until, state.time)}: the origin reported the quota as exhausted.` : null,
    quota.lost > 0 ? `${number(quota.lost)} units lost: counted as used after a crash.` : null,
    quota.overrun > 0 ? `${number(quota.overrun)} units used beyond the limit, as the origin reported.` : null,
    quota.drift ? `Drift ${number(quota.drift)}: units reported by the origin minus units counted here.` : null,
  ].filter((text) => text !== null);
  const plan = quota.pacing ? `The plan (${quota.pacing.mode}) had ${number(quota.pacing.planned)}.` : '';
  const pace = even === null ? '' : `An even pace would have used ${number(Math.round(even))} by now.`;
  const until = quota.sliding_s === null
    ? `until ${moment(quota.window_end, state.time)} (${duration(quota.window_ends_in_s)})`
    : `in any ${duration(quota.sliding_s)}`;
  return h('div', { class: 'card', key: quota.name },
    h('h3', {}, quota.name, h('span', {}, `${quota.enforce ? '' : 'shadow mode, '}${until}`)),
    h('p', {}, h('span', { class: 'big' }, percent(share)), ` ${number(quota.used)} of ${number(quota.limit)} units used, ${number(quota.reserved)} reserved, ${number(quota.remaining)} remain`),
    gauge(quota, even),
    h('p', {}, [pace, plan].filter(Boolean).join(' ')),
    notes.map((text) => h('p', { class: 'bad' }, text)),
    quotaChart(quota, state));
}

/** The figures of a promise: name, words, and whether it is the largest or the smallest share. */
const FIGURES = [
  ['people_refused', 'of people’s pages refused', 'at most'],
  ['search_served', 'of the pages of verified search engines served in the worst hour', 'at least'],
  ['left_over', 'of the limit left over', 'at most'],
];

/** Returns what a window keeps of the promise, as a phrase. */
function kept(window, promised) {
  const texts = FIGURES.filter(([name]) => promised[name] !== null && window[name] !== null).map(([name, words, bound]) =>
    `${exactPercent(window[name])} ${words} (${bound} ${exactPercent(promised[name])})`);
  return texts.join('; ') || 'nothing to compare yet';
}

/** Returns the promise of the policy, and what the windows of the first quota keep of it. */
function promise(state) {
  const { promise: promised } = state;
  if (!promised) {
    return null;
  }
  const line = (name, window) => h('p', { class: window.missed.length > 0 ? 'bad' : '' },
    `${name}: ${window.missed.length > 0 ? 'missed' : 'kept'}: ${kept(window, promised)}.`);
  return h('div', { class: 'card', key: 'promise' }, h('h3', {}, 'Promise'),
    line('This window', promised.current), promised.last ? line('The last window', promised.last) : null);
}

/** Returns the keys of a budget that have used most. */
function budgetCard(budget, state) {
  const rows = table(`Keys that have used most of ${budget.name}`, [
    ['key', ({ key: name }) => name],
    ['used', ({ used }) => number(used), 'number'],
    ['limit', ({ limit }) => (limit === null ? '' : number(limit)), 'number'],
  ], budget.top, { key: ({ key: name }) => name });
  const notes = [budget.enforce ? null : 'shadow mode', budget.window_end ? `until ${moment(budget.window_end, state.time)}` : null];
  return h('div', { class: 'card', key: `budget ${budget.name}` },
    h('h3', {}, budget.name, h('span', {}, notes.filter(Boolean).join(', '))),
    h('p', {}, `A budget for each key: keys: ${number(budget.keys)}, used: ${number(budget.used)} units, max_keys: ${number(budget.max_keys)}.`),
    budget.replaced > 0 ? h('p', { class: 'bad' }, `${number(budget.replaced)} further keys took the place of others: max_keys is too low.`) : null,
    budget.top.length > 0 ? rows : null);
}

/** Returns the cards of all quotas, of the budgets, and of the promise. */
export function quotas(state) {
  const budgets = state.budgets ?? [];
  return state.quotas.length + budgets.length > 0
    ? h('div', { class: 'cards' }, state.quotas.map((quota) => card(quota, state)),
      budgets.map((budget) => budgetCard(budget, state)), promise(state))
    : h('p', {}, 'The configuration has no quotas.');
}
