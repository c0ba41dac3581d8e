// What needs an action, the origin behind the gateway, crawlers, switches and the configuration.

import { mostRefused } from './decisions.js';
import { h } from './dom.js';
import { duration, moment, number, percent } from './format.js';
import { table } from './table.js';

/** Returns a switch as a sentence, such as `block 192.0.2.0/24 until 14:00: scrapes (ann)`. */
export function switchText({ target, effect, until, except, why, by }, now) {
  return [
    target === effect ? effect : `${effect} ${target}`,
    until ? ` until ${moment(until, now)}` : '',
    except.length > 0 ? `, except ${except.join(', ')}` : '',
    why ? `: ${why}` : '',
    by ? ` (${by})` : '',
  ].join('');
}

/** Returns what needs an action, then the switches, which an administrator has set, then the warnings. */
export function problems(state) {
  const { settings: { last_reload_failed: failure } } = state;
  const origins = allOrigins(state);
  const when = (at) => moment(at, state.time);
  const problem = (text) => h('p', {}, text);
  return [
    state.not_ready_reasons.map((text) => problem(`Not ready: ${text}`)),
    origins.filter((origin) => origin.outage).map((origin) => problem(`The origin ${originLabel(origin)} has not responded since ${when(origin.outage.since)}, ${number(origin.outage.failed_requests)} requests failed: ${origin.outage.last_error}`)),
    origins.flatMap((origin) => origin.servers).filter((server) => !server.healthy).map((server) => problem(`Origin server ${server.url} ejected after ${number(server.failures)} failures: ${server.last_error ?? 'no response'}`)),
    state.ledger_error ? problem(`Ledger: ${state.ledger_error}`) : null,
    state.untrusted_proxy ? problem(`Proxy: ${state.untrusted_proxy}`) : null,
    failure ? problem(`Reload failed at ${when(failure.time)}; the previous configuration is still active:\n${failure.errors}`) : null,
    state.promise?.missed ? problem(`Promise: ${state.promise.missed}`) : null,
    state.path_costs.map((cost) => problem(pathCost(cost))),
    state.log_lines_dropped > 0 ? problem(`Access log: ${number(state.log_lines_dropped)} lines dropped, because they could not be written in time: the disk is full or slow.`) : null,
    state.switches.map((active) => h('p', { class: 'switch' }, `Switch: ${switchText(active, state.time)}`)),
    state.notes.map((text) => h('p', { class: 'note' }, text)),
  ];
}

/** Returns the costs of paths without a route, and what to do about them. */
function pathCost({ path, quota, units, generalized_from: count, examples }) {
  const sum = `Costs without a route: ${number(units)} ${units === 1 ? 'unit' : 'units'} of ${quota} by ${path}`;
  return count === 0
    ? `${sum}: add a route with a cost.`
    : `${sum}, generalized from ${number(count)} pages such as ${examples.join(', ')}: add routes with a cost for the pages that cost, or the others are refused with them.`;
}

function scopeState(row) {
  if (!row.controller) {
    return 'not limited';
  }
  return row.backoff_s > 0 ? h('span', { class: 'bad' }, `backing off for ${duration(Math.ceil(row.backoff_s))} (level ${row.backoff_level})`)
    : row.backoff_level > 0 ? `recovering (level ${row.backoff_level})`
      : row.backoff_parts > 0 ? `${row.backoff_parts} clients or routes back off` : 'open';
}

/** Returns all origins. */
const allOrigins = (state) => state.origins ?? [state.origin];

/** Returns the servers of an origin, behind its name if it has one. */
const originLabel = ({ name, authority }) => (name ? `${name} (${authority})` : authority);

/** Returns an origin and its health as a sentence. */
function originText(origin) {
  const healthy = origin.servers.filter((server) => server.healthy).length;
  const health = origin.outage ? 'does not respond' : !origin.resolved ? 'not resolved yet'
    : healthy < origin.servers.length ? `: ${healthy} of ${origin.servers.length} servers respond` : 'responds';
  return `${originLabel(origin)} ${origin.addresses.length > 0 ? `at ${origin.addresses.join(', ')} ` : ''}${health}.`;
}

/** Returns the section of the origins. */
export function originSection(state) {
  return [
    h('p', {}, `${allOrigins(state).map(originText).join(' ')} ${number(state.connections)} client connections.`),
    table('Scopes', [
      ['scope', (row) => [row.name, row.controller && row.controller !== 'fixed' ? h('small', {}, row.controller) : null]],
      ['in flight', (row) => (row.limit ? `${number(row.inflight)} of ${number(row.limit)}` : number(row.inflight)), 'number'],
      ['queued', (row) => number(row.queue_length ?? 0), 'number'],
      ['delay', (row) => (row.delay_s > 0 ? `${number(Math.round(row.delay_s * 1000))} ms` : ''), 'number'],
      ['state', scopeState],
    ], state.scopes),
    mostRefused(state),
  ];
}

/** Returns the section of the crawlers. */
export const crawlers = (state) => (state.crawlers.length > 0 ? table('Since the start, by operator', [
  ['operator', (row) => row.operator],
  ['requests', (row) => number(row.requests), 'number'],
  ['robots.txt', (row) => (row.robots_share === null ? '' : percent(row.robots_share)), 'number'],
  ['crawl delay', (row) => (row.crawl_delay_s === null ? '' : duration(row.crawl_delay_s)), 'number'],
  ['mean interval', (row) => (row.mean_interval_s === null ? '' : duration(row.mean_interval_s)), 'number'],
  ['violations', (row) => number(row.violations), 'number'],
], state.crawlers) : h('p', {}, 'No crawler has sent a request.'));

/** Returns the switches in effect, each with a button that ends it. */
export const switches = (state) => (state.switches.length > 0 ? table('In effect', [
  ['target', (row) => row.target],
  ['effect', (row) => row.effect + (row.except.length > 0 ? `, except ${row.except.join(', ')}` : '')],
  ['since', (row) => moment(row.since, state.time)],
  ['until', (row) => (row.until ? moment(row.until, state.time) : 'switched off')],
  ['why', (row) => row.why ?? ''],
  ['by (unverified)', (row) => row.by ?? ''],
  ['from', (row) => row.peer ?? ''],
  ['end', (row) => h('button', { type: 'button', class: 'link', key: row.target, 'data-end': row.target, 'aria-label': `end: switch of ${row.target}` }, 'end')],
], state.switches, { key: (row) => row.target }) : h('p', {}, 'No switch is in effect.'));

/** Returns the section of the configuration. */
export const configuration = (state) => [
  h('p', {}, `Loaded ${moment(state.settings.loaded_at, state.time)}. Listens on ${state.listen.join(', ')}.`),
  state.corrections.length > 0 ? table('Manual corrections', [
    ['at', (row) => moment(row.time, state.time)],
    ['quota', (row) => row.quota],
    ['was', (row) => number(row.from), 'number'],
    ['is', (row) => number(row.to), 'number'],
    ['by (unverified)', (row) => row.by ?? ''],
    ['from', (row) => row.peer ?? ''],
  ], state.corrections) : null,
];
