// Clients: recent decisions, who asks for most, and who is refused most, each with a way to block the client.

import { isAddress, isClient } from './address.js';
import { h } from './dom.js';
import { duration, kind, moment, number, time } from './format.js';
import { table } from './table.js';

export const explain = (decision, text = 'explain') => h('button', {
  type: 'button', class: 'link', 'data-explain': decision, 'aria-label': `${text}: explain decision ${decision}`,
}, text);

/** Returns the button that blocks a client, or ends its block. */
function block(state, { address, operator = null, words }) {
  const active = state.switches.find(({ effect, target }) => effect === 'block' && isClient(target, address));
  if (active) {
    return h('button', { type: 'button', class: 'link', 'data-end': active.target, 'aria-label': `unblock ${address}` }, 'unblock');
  }
  return isAddress(address) ? h('button', {
    type: 'button', class: 'link', 'data-block': address, 'data-operator': operator, 'data-words': words, 'aria-label': `block ${address}`,
  }, 'block') : null;
}

const sentences = (list) => list.map((sentence) => h('span', { class: 'sentence' }, sentence));

function verdict({ verdict: name, reason, shadow_reason: shadow, switch: effect, cache }) {
  return [
    h('strong', { class: name }, name),
    reason ? ` by ${reason}` : null,
    shadow ? h('small', {}, `shadow: ${shadow}`) : null,
    effect ? h('small', {}, `switch: ${effect}`) : null,
    cache === 'stale' ? h('small', {}, 'sent a copy') : null,
  ];
}

/** Returns the table of decisions. */
export function decisions(state, rows) {
  if (rows.length === 0) {
    return h('p', {}, 'No stored decision matches.');
  }
  const who = (row) => [...new Set([kind(row.kind), row.operator, row.class].filter(Boolean))].join(', ');
  return table('Latest first', [
    ['time', (row) => explain(row.id, time(row.time)), 'when'],
    ['status', (row) => row.status, 'status'],
    ['verdict', verdict, 'verdict'],
    ['client', (row) => [row.client, h('small', {}, who(row))], 'wide client'],
    ['request', (row) => [h('span', { class: 'target' }, `${row.method} ${row.path}${row.query ? `?${row.query}` : ''}`), h('small', {}, row.user_agent || '(no user agent)')], 'wide request'],
    ['evidence', (row) => sentences(row.evidence_text), 'wide evidence'],
    ['action', (row) => block(state, { address: row.client, operator: row.operator, words: who(row) }), 'action'],
  ], rows, { style: 'decisions', key: (row) => row.id });
}

/** Returns the section of the largest spenders. */
export function spenders(state) {
  const { since: start, clients, networks, paths, user_agents: agents } = state.spenders;
  const since = `since ${moment(start, state.time)}`;
  if (clients.length + paths.length === 0) {
    return h('p', {}, `No request has cost units ${since}.`);
  }
  const amounts = [
    ['requests', (row) => number(row.requests), 'number'],
    ['refused', (row) => number(row.refused), 'number'],
    ['charged', (row) => number(row.units), 'number'],
    ['asked', (row) => number(row.units_asked), 'number'],
    ['last decision', (row) => explain(row.latest_decision), 'nowrap'],
  ];
  const named = (row) => row.name || '(none)';
  const client = (row) => [row.name, h('small', {}, kind(row.kind), sentences(row.evidence_text ?? []))];
  const action = ['action', (row) => block(state, { address: row.name, words: kind(row.kind) }), 'nowrap'];
  const list = (caption, columns, rows) => h('div', {}, table(caption, columns, rows, { key: (row) => `${row.name} ${row.kind}` }));
  return h('div', { class: 'columns' },
    list(`Clients by units, ${since}`, [['client', client], ...amounts, action], clients),
    list(`Networks by units, ${since}`, [['network', named], ...amounts], networks),
    list(`Paths by units, ${since}`, [['path', named], ...amounts], paths),
    list(`User agents by units, ${since}`, [['user agent', named], ...amounts], agents));
}

/** Returns the table of the clients that were refused most; null if there are none. */
export const mostRefused = (state) => (state.top_clients.length > 0 ? table('Most refused clients', [
  ['client', (row) => row.key],
  ['class', (row) => row.class],
  ['refused', (row) => number(row.refused), 'number'],
  ['tokens left', (row) => (row.bucket_remaining === null ? '' : number(row.bucket_remaining)), 'number'],
  ['limited now', (row) => (row.limited_by ? `${row.limited_by}${row.limited_for_s === null ? '' : ` for ${duration(row.limited_for_s)}`}` : '')],
  ['action', (row) => block(state, { address: row.key, words: row.class }), 'nowrap'],
], state.top_clients.slice(0, 10), { key: (row) => row.key }) : null);
