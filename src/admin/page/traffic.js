// Requests by class and route: admitted and refused, with statuses, bytes and latency; and what the cache answered.

import { chart, key } from './charts.js';
import { h } from './dom.js';
import { bytes, byReason, milliseconds, moment, number, percent } from './format.js';
import { firstCachedSince, quantiles, rates, samplesOf, savedByQuota, SPANS } from './samples.js';
import { table } from './table.js';

const STATUSES = ['1xx', '2xx', '3xx', '4xx', '429', '5xx', '503', 'error'];

/** Returns the columns of responses: each status that occurs among the rows, bytes and latency. */
function responseColumns(rows) {
  const seen = STATUSES.filter((status) => rows.some(({ responses }) => responses.statuses[status] > 0));
  return [
    ...seen.map((status) => [status, ({ responses }) => number(responses.statuses[status] ?? 0), 'number']),
    ['bytes', ({ responses }) => bytes(responses.bytes), 'number'],
    ['median', ({ responses }) => milliseconds(responses.median_ms), 'number'],
    ['95 % within', ({ responses }) => milliseconds(responses.p95_ms), 'number'],
  ];
}

function classTable(state) {
  const shedding = (name) => state.quotas.flatMap(({ name: quota, classes }) => classes
    .filter((found) => found.class === name && found.shed > 0)
    .map(({ shed, tier }) => `${percent(shed)} of ${quota}, tier ${tier}`)).join('; ');
  const admitShare = (name) => state.quotas.flatMap(({ classes }) => classes
    .filter((found) => found.class === name && (found.plan?.admit_share ?? null) !== null)
    .map(({ plan }) => percent(plan.admit_share))).join(', ');
  const charged = (name) => state.quotas.map(({ name: quota, classes }) => [quota, classes.find((found) => found.class === name)?.charged ?? 0])
    .filter(([, units]) => units > 0).map(([quota, units]) => (state.quotas.length > 1 ? `${quota} ${number(units)}` : number(units))).join(', ');
  const optional = (column, isUsed) => (state.traffic.some(isUsed) ? [column] : []);
  return table('Requests since the start, by class', [
    ['class', (row) => row.class],
    ['requests', (row) => number(row.admitted + row.refused), 'number'],
    ['admitted', (row) => number(row.admitted), 'number'],
    ['refused', (row) => number(row.refused), 'number'],
    ['refused by', (row) => byReason(row.refused_by), 'wide'],
    ...optional(['shadow mode would refuse', (row) => (row.shadow_refused > 0 ? `${number(row.shadow_refused)} (${byReason(row.shadow_refused_by)})` : '0')], (row) => row.shadow_refused > 0),
    ['units charged', (row) => charged(row.class), state.quotas.length > 1 ? null : 'number'],
    ...optional(['shed now', (row) => shedding(row.class)], (row) => shedding(row.class) !== ''),
    ...optional(['admitted by the plan', (row) => admitShare(row.class)], (row) => admitShare(row.class) !== ''),
  ], state.traffic, { key: (row) => row.class });
}

/** Returns the charts of the last hour or day. */
function charts(state, span) {
  const to = Date.parse(state.time);
  const from = to - SPANS[span];
  const samples = samplesOf(span);
  const classCount = (name, count) => (sample) => {
    const found = sample.classes?.find((candidate) => candidate.name === name);
    return found && count(found);
  };
  const byClass = (count) => state.traffic.map((row, index) => ({
    name: row.class, style: `line c${index % 7}`, points: rates(samples, classCount(row.class, count), 60e3), hasAny: row.admitted + row.refused > 0,
  })).filter(({ hasAny }) => hasAny);
  const shownStatuses = STATUSES.filter((status) => state.responses.statuses[status] > 0);
  const statuses = shownStatuses.map((status, index) => ({
    name: status, style: `line c${index % 7}`, points: rates(samples, ({ responses }) => responses && (responses.statuses[status] ?? 0), 60e3),
  }));
  const bounds = state.latency.map(({ up_to_ms: bound }) => bound);
  const latency = [['median', 0.5, 'line c0'], ['95 % within', 0.95, 'line c6']].map(([name, share, style]) => ({
    name, style, points: quantiles(samples, bounds, share),
  }));
  const sent = [{ name: 'bytes', style: 'line c5', points: rates(samples, ({ responses }) => responses?.bytes, 1000) }];
  const plot = (title, series, text) => h('div', {},
    h('h3', {}, title),
    chart({ label: title, series, from, to, ...(text ? { text } : {}) }),
    series.length > 1 ? key(series) : null);
  return h('div', { class: 'plots' },
    plot('Admitted requests a minute', byClass(({ admitted }) => admitted)),
    plot('Refused requests a minute', byClass(({ refused }) => refused)),
    plot('Responses a minute by status', statuses),
    plot('Latency of admitted requests', latency, milliseconds),
    plot('Bytes sent a second', sent, bytes));
}

/** Returns the section of the classes. */
export const classes = (state, span) => [
  charts(state, span),
  classTable(state),
  table('Responses since the start, by class', [['class', (row) => row.class], ...responseColumns(state.traffic)], state.traffic, { key: (row) => row.class }),
];

/** Returns the section of the routes. */
export function routes(state) {
  if (state.routes.length === 0) {
    return h('p', {}, 'No request yet.');
  }
  const caption = state.routes.length < 50 ? 'Since the start, busiest first' : 'The 50 busiest since the start';
  return table(caption, [
    ['route', (row) => row.route],
    ['requests', (row) => number(row.admitted + row.refused), 'number'],
    ['refused', (row) => number(row.refused), 'number'],
    ...responseColumns(state.routes),
  ], state.routes, { key: (row) => row.route });
}

/** Returns the units of a quota that the cache saved in its window, as far as the samples reach, and the words for that time. */
function savedInWindow(state, { name, window_start }) {
  const start = Date.parse(window_start);
  const saved = savedByQuota(state.cache)[name] ?? 0;
  if (Date.parse(state.started) >= start) {
    return [saved, 'since the start'];
  }
  const first = firstCachedSince(start);
  // Samples are four minutes apart: the first one after the start of the window stands for it.
  const isWhole = first.at - start < 600e3;
  return [saved - (first.cache.saved[name] ?? 0), isWhole ? 'in its window' : `since ${moment(first.time, state.time)}`];
}

/** Returns the section of the cache. */
export function cache(state, span) {
  const counted = samplesOf(span).filter((sample) => sample.cache);
  const [first, last] = [counted[0].cache, counted.at(-1).cache];
  const isNew = Date.parse(state.started) >= Date.parse(state.time) - SPANS[span];
  const [requests, answered] = isNew ? [last.requests, last.answered] : [last.requests - first.requests, last.answered - first.answered];
  const since = isNew ? 'since the start' : `in the last ${span}`;
  const saved = state.quotas.map((quota) => [quota.name, ...savedInWindow(state, quota)]);
  return [
    h('p', {}, requests > 0
      ? [h('span', { class: 'big' }, percent(answered / requests)), ` of ${number(requests)} requests on cached routes answered by stored responses ${since}`]
      : `No request on a cached route ${since}.`),
    saved.map(([name, units, words]) => h('p', {}, `${number(units)} units of ${name} saved ${words}`)),
  ];
}
