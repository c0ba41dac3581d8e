// The live page: draws the state that the gateway sends once a second. docs/OPERATIONS.md has the admin API behind it.

import { chart, short } from './charts.js';
import { h, render } from './dom.js';

const find = (id) => document.getElementById(id);

let state = null;
let history = { hour: [], day: [] };
let mayWrite = false;

async function api(path, options) {
  const response = await fetch(path, options);
  const body = await response.json();
  if (!response.ok) {
    throw Object.assign(new Error(body.detail ?? response.statusText), { status: response.status });
  }
  return body;
}

const send = (method, path, body) => api(path, { method, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });

// Texts

const number = (amount) => Number(amount).toLocaleString('en-US', { maximumFractionDigits: 3 });
const percent = (share) => `${(share * 100).toLocaleString('en-US', { maximumFractionDigits: share < 0.1 ? 1 : 0 })} %`;
const time = (text) => new Date(text).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const kind = (name) => name.replaceAll('_', ' ');

function moment(text) {
  const at = new Date(text);
  const isToday = at.toDateString() === new Date(state.time).toDateString();
  return at.toLocaleString([], { ...(isToday ? {} : { day: 'numeric', month: 'short' }), hour: '2-digit', minute: '2-digit' });
}

function duration(seconds) {
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

const byReason = (counts) => Object.entries(counts).sort(([, one], [, other]) => other - one)
  .map(([reason, count]) => `${number(count)} by ${reason}`).join(', ');

// Tables

/** Returns a table. A column is [title, cell of a row, class]; the first one names the row. */
function table(caption, columns, rows) {
  const cell = (row, [, value, style], index) => (index === 0
    ? h('th', { scope: 'row', class: style }, value(row))
    : h('td', { class: style }, value(row)));
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', {},
      h('caption', {}, caption),
      h('thead', {}, h('tr', {}, columns.map(([title, , style]) => h('th', { scope: 'col', class: style }, title)))),
      h('tbody', {}, rows.map((row) => h('tr', {}, columns.map((column, index) => cell(row, column, index)))))));
}

const explain = (decision, text = 'explain') => h('button', { type: 'button', class: 'link', 'data-explain': decision, 'aria-label': `${text}: explain decision ${decision}` }, text);

// Sections

/** Returns a switch as a sentence, such as `block 192.0.2.0/24 until 2:00 PM: scrapes (ann)`. */
function switchText({ target, effect, until, except, why, by }) {
  return [
    target === effect ? effect : `${effect} ${target}`,
    until ? ` until ${moment(until)}` : '',
    except.length > 0 ? `, except ${except.join(', ')}` : '',
    why ? `: ${why}` : '',
    by ? ` (${by})` : '',
  ].join('');
}

function drawProblems() {
  const { origin, settings } = state;
  const problem = (text) => h('p', {}, text);
  const { outage } = origin;
  const failure = settings.last_reload_failed;
  render(find('problems'),
    state.not_ready_reasons.map((text) => problem(`Not ready: ${text}`)),
    outage ? problem(`The origin ${origin.authority} has not responded since ${moment(outage.since)}, ${number(outage.failed_requests)} requests failed: ${outage.last_error}`) : null,
    origin.servers.filter((server) => !server.healthy).map((server) => problem(`Origin server ${server.url} ejected after ${number(server.failures)} failures: ${server.last_error ?? 'no response'}`)),
    state.switches.map((active) => problem(switchText(active))),
    state.ledger_error ? problem(`Ledger: ${state.ledger_error}`) : null,
    state.untrusted_proxy ? problem(`Proxy: ${state.untrusted_proxy}`) : null,
    failure ? problem(`Reload failed at ${moment(failure.time)}; the previous configuration is still active:\n${failure.errors}`) : null,
    state.path_costs.map((cost) => problem(pathCost(cost))),
    state.log_lines_dropped > 0 ? problem(`Access log: ${number(state.log_lines_dropped)} lines dropped, because the writer could not keep up.`) : null,
    state.notes.map((text) => h('p', { class: 'note' }, text)));
}

/** Returns the costs of paths without a route, and what to do about them. */
function pathCost({ path, quota, units, generalized_from: count, examples }) {
  const sum = `Costs without a route: ${number(units)} ${units === 1 ? 'unit' : 'units'} of ${quota} by ${path}`;
  return count === 0
    ? `${sum}: add a route with a cost.`
    : `${sum}, generalized from ${number(count)} pages such as ${examples.join(', ')}: add routes with a cost for the pages that cost, or the others are refused with them.`;
}

/** Returns the units that an even pace would have used by now. */
function evenPace(quota) {
  const [start, end, now] = [quota.window_start, quota.window_end, state.time].map((text) => Date.parse(text));
  return end > start ? (quota.limit * Math.min(Math.max(now - start, 0), end - start)) / (end - start) : quota.limit;
}

function gauge(quota) {
  const share = (units) => Math.min(units / Math.max(quota.limit, 1e-9), 1) * 1000;
  const [used, reserved] = [share(quota.used), share(quota.used + quota.reserved)];
  const mark = (units, style) => h('line', { class: style, x1: share(units), x2: share(units), y1: 0, y2: 28, 'stroke-width': 4 });
  return h('svg', { class: 'gauge', viewBox: '0 0 1000 28', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    h('rect', { class: 'track', x: 0, y: 6, width: 1000, height: 16 }),
    h('rect', { class: 'reserved', x: 0, y: 6, width: reserved, height: 16 }),
    h('rect', { class: quota.remaining > 0 ? 'used' : 'over', x: 0, y: 6, width: used, height: 16 }),
    mark(evenPace(quota), 'even'),
    quota.pacing ? mark(quota.pacing.planned, 'plan') : null);
}

const span = () => document.querySelector('input[name=span]:checked').value;

/** Returns the samples of the chosen span, the current state last. */
function samples() {
  const current = {
    time: state.time,
    quotas: state.quotas.map(({ name, used, limit, pacing }) => ({ name, used, limit, planned: pacing?.planned ?? null })),
    classes: state.traffic.map(({ class: name, admitted, refused, shadow_refused }) => ({ name, admitted, refused, shadow_refused })),
    cache: state.cache ? { requests: state.cache.requests, answered: state.cache.answered } : null,
  };
  return [...history[span()], current].map((sample) => ({ ...sample, at: Date.parse(sample.time) }));
}

function spanLimits() {
  const to = Date.parse(state.time);
  return { from: to - (span() === 'hour' ? 3600e3 : 86400e3), to };
}

function quotaChart(quota) {
  const { from, to } = spanLimits();
  const of = (amount) => samples().flatMap((sample) => {
    const found = sample.quotas.find(({ name }) => name === quota.name);
    const value = found ? amount(found) : null;
    return value === null || sample.at < from ? [] : [[sample.at, value]];
  });
  const start = Math.max(from, Date.parse(quota.window_start));
  const pace = (at) => (quota.limit * (at - Date.parse(quota.window_start))) / (Date.parse(quota.window_end) - Date.parse(quota.window_start));
  const series = [
    { name: 'used', style: 'used', points: of(({ used }) => used) },
    { name: 'even pace', style: 'even', points: [[start, pace(start)], [to, pace(to)]] },
  ];
  if (quota.pacing) {
    series.push({ name: 'plan', style: 'plan', points: of(({ planned }) => planned) });
  }
  return [
    chart({ label: `Units used of ${quota.name}`, series, from, to, unit: 'units' }),
    h('p', { class: 'key' }, series.map(({ name, style }) => h('span', {}, h('i', { class: style }), name))),
  ];
}

function drawQuotas() {
  const card = (quota) => {
    const even = evenPace(quota);
    const share = quota.limit > 0 ? quota.used / quota.limit : 1;
    const notes = [
      quota.closed_until ? `Closed until ${moment(quota.closed_until)}: the origin reported the quota as exhausted.` : null,
      quota.lost > 0 ? `${number(quota.lost)} units lost: counted as used after a crash.` : null,
      quota.overrun > 0 ? `${number(quota.overrun)} units used beyond the limit, as the origin reported.` : null,
      quota.drift ? `Drift ${number(quota.drift)}: units reported by the origin minus units counted here.` : null,
    ].filter((text) => text !== null);
    const plan = quota.pacing ? ` The plan (${quota.pacing.mode}) had ${number(quota.pacing.planned)}.` : '';
    return h('div', { class: 'card' },
      h('h3', {}, quota.name, h('span', {}, `${quota.enforce ? '' : 'shadow mode, '}until ${moment(quota.window_end)} (${duration(quota.window_ends_in_s)})`)),
      h('p', {}, h('span', { class: 'big' }, percent(share)), ` ${number(quota.used)} of ${number(quota.limit)} units used, ${number(quota.reserved)} reserved, ${number(quota.remaining)} remain`),
      gauge(quota),
      h('p', {}, `An even pace would have used ${number(Math.round(even))} by now.${plan}`),
      notes.map((text) => h('p', { class: 'bad' }, text)),
      quotaChart(quota));
  };
  render(find('quotas'), state.quotas.length > 0
    ? h('div', { class: 'cards' }, state.quotas.map(card))
    : h('p', {}, 'The configuration has no quotas.'));
}

/** Returns the units of a quota that the cache has saved since the start, now. */
const savedSoFar = (quota) => state.cache.saved.filter((entry) => entry.quota === quota).reduce((sum, { units }) => sum + units, 0);

/** Returns the units of a quota that the cache saved in its window, as far as the samples reach, and the words for that time. */
function savedInWindow({ name, window_start }) {
  const start = Date.parse(window_start);
  if (Date.parse(state.started) >= start) {
    return [savedSoFar(name), 'since the start'];
  }
  const cached = history.day.filter(({ cache }) => cache);
  const first = cached.find(({ time: at }) => Date.parse(at) >= start) ?? cached.at(-1);
  if (!first) {
    return [savedSoFar(name), 'since the start'];
  }
  // Samples are four minutes apart: the first one after the start of the window stands for it.
  const isWhole = Date.parse(first.time) - start < 600e3;
  return [savedSoFar(name) - (first.cache.saved[name] ?? 0), isWhole ? 'in its window' : `since ${moment(first.time)}`];
}

function drawCache() {
  find('cache-section').hidden = !state.cache;
  if (!state.cache) {
    return;
  }
  const counted = samples().filter(({ at, cache }) => cache && at >= spanLimits().from);
  const [first, last] = [counted[0].cache, counted.at(-1).cache];
  const isNew = Date.parse(state.started) >= spanLimits().from;
  const [requests, answered] = isNew ? [last.requests, last.answered] : [last.requests - first.requests, last.answered - first.answered];
  const since = isNew ? 'since the start' : `in the last ${span()}`;
  const saved = state.quotas.map((quota) => [quota.name, ...savedInWindow(quota)]);
  render(find('cache'),
    h('p', {}, requests > 0
      ? [h('span', { class: 'big' }, percent(answered / requests)), ` of ${number(requests)} requests on cached routes answered by stored responses ${since}`]
      : `No request on a cached route ${since}.`),
    saved.map(([name, units, words]) => h('p', {}, `${number(units)} units of ${name} saved ${words}`)));
}

/** Returns the requests a minute of one class between two samples each. */
function rates(name, count) {
  const { from } = spanLimits();
  const counted = samples().filter((sample) => sample.at >= from).flatMap((sample) => {
    const found = sample.classes.find((sample_class) => sample_class.name === name);
    return found ? [[sample.at, count(found)]] : [];
  });
  return counted.slice(1).flatMap(([at, total], index) => {
    const [before, earlier] = counted[index];
    // The last sample is the current state, and may be a moment after the one before it.
    return at - before < 5000 ? [] : [[at, (Math.max(total - earlier, 0) * 60e3) / (at - before)]];
  });
}

function drawClasses() {
  const shedding = (name) => state.quotas.flatMap(({ name: quota, classes }) => classes
    .filter((found) => found.class === name && found.shed > 0)
    .map(({ shed, tier }) => `${percent(shed)} of ${quota}, tier ${tier}`)).join('; ');
  const admitShare = (name) => state.quotas.flatMap(({ classes }) => classes
    .filter((found) => found.class === name && (found.plan?.admit_share ?? null) !== null)
    .map(({ plan }) => percent(plan.admit_share))).join(', ');
  const charged = (name) => state.quotas.map(({ name: quota, classes }) => [quota, classes.find((found) => found.class === name)?.charged ?? 0])
    .filter(([, units]) => units > 0).map(([quota, units]) => (state.quotas.length > 1 ? `${quota} ${number(units)}` : number(units))).join(', ');
  const columns = [
    ['class', (row) => row.class],
    ['asked', (row) => number(row.admitted + row.refused), 'number'],
    ['served', (row) => number(row.admitted), 'number'],
    ['refused', (row) => number(row.refused), 'number'],
    ['refused by', (row) => byReason(row.refused_by), 'wide'],
    ['shadow mode would refuse', (row) => (row.shadow_refused > 0 ? `${number(row.shadow_refused)} (${byReason(row.shadow_refused_by)})` : '0')],
    ['units charged', (row) => charged(row.class), 'number'],
    ['shed now', (row) => shedding(row.class)],
    ['admitted by the plan', (row) => admitShare(row.class)],
  ];
  const { from, to } = spanLimits();
  const lines = (count, style) => state.traffic.map((row, index) => ({
    name: row.class, style: `line c${index % 7}${style}`, points: rates(row.class, count),
  }));
  const plot = (title, series) => h('div', {},
    h('h3', {}, title),
    chart({ label: title, series, from, to, unit: 'a minute' }),
    h('p', { class: 'key' }, state.traffic.map((row, index) => h('span', {}, h('i', { class: `c${index % 7}` }), row.class))));
  render(find('classes'),
    table('Requests since the start', columns, state.traffic),
    h('div', { class: 'columns' },
      plot('Served, requests a minute', lines(({ admitted }) => admitted, '')),
      plot('Refused, requests a minute', lines(({ refused }) => refused, ' refused'))));
}

function drawSpenders() {
  const { spenders } = state;
  const amounts = [
    ['requests', (row) => number(row.requests), 'number'],
    ['refused', (row) => number(row.refused), 'number'],
    ['charged', (row) => number(row.units), 'number'],
    ['asked', (row) => number(row.units_asked), 'number'],
    ['last decision', (row) => explain(row.latest_decision), 'nowrap'],
  ];
  const named = (row) => row.name || '(none)';
  const client = (row) => [row.name, h('small', {}, [kind(row.kind), ...(row.evidence ?? [])].join(', '))];
  const since = `since ${moment(spenders.since)}`;
  const list = (caption, column, rows) => h('div', {}, table(caption, [column, ...amounts], rows));
  const hasAny = spenders.clients.length + spenders.paths.length > 0;
  render(find('spenders'), hasAny ? h('div', { class: 'columns' },
    list(`Clients by units, ${since}`, ['client', client], spenders.clients),
    list(`Networks by units, ${since}`, ['network', named], spenders.networks),
    list(`Paths by units, ${since}`, ['path', named], spenders.paths),
    list(`User agents by units, ${since}`, ['user agent', named], spenders.user_agents))
    : h('p', {}, `No request has cost units ${since}.`));
}

function drawOrigin() {
  const { origin } = state;
  const backoff = (row) => (row.backoff_s > 0 ? h('span', { class: 'bad' }, `backing off for ${duration(Math.ceil(row.backoff_s))} (level ${row.backoff_level})`)
    : row.backoff_level > 0 ? `recovering (level ${row.backoff_level})`
      : row.backoff_parts > 0 ? `${row.backoff_parts} clients or routes back off` : 'open');
  const columns = [
    ['scope', (row) => [row.name, row.controller && row.controller !== 'fixed' ? h('small', {}, row.controller) : null]],
    ['in flight', (row) => (row.limit ? `${number(row.inflight)} of ${number(row.limit)}` : number(row.inflight)), 'number'],
    ['queued', (row) => number(row.queue_length ?? 0), 'number'],
    ['delay', (row) => (row.delay_s > 0 ? `${number(Math.round(row.delay_s * 1000))} ms` : ''), 'number'],
    ['state', (row) => (row.controller ? backoff(row) : 'not limited')],
  ];
  const healthy = origin.servers.filter((server) => server.healthy).length;
  const health = origin.outage ? 'does not respond' : !origin.resolved ? 'not resolved yet'
    : healthy < origin.servers.length ? `: ${healthy} of ${origin.servers.length} servers respond` : 'responds';
  render(find('origin'),
    h('p', {}, `${origin.authority} ${origin.addresses.length > 0 ? `at ${origin.addresses.join(', ')} ` : ''}${health}. ${number(state.connections)} client connections.`),
    table('Scopes', columns, state.scopes),
    state.top_clients.length > 0 ? table('Most refused clients', [
      ['client', (row) => row.key],
      ['class', (row) => row.class],
      ['refused', (row) => number(row.refused), 'number'],
      ['tokens left', (row) => (row.bucket_remaining === null ? '' : number(row.bucket_remaining)), 'number'],
      ['limited now', (row) => (row.limited_by ? `${row.limited_by}${row.limited_for_s === null ? '' : ` for ${duration(row.limited_for_s)}`}` : '')],
    ], state.top_clients.slice(0, 10)) : null);
}

function drawCrawlers() {
  const columns = [
    ['operator', (row) => row.operator],
    ['requests', (row) => number(row.requests), 'number'],
    ['robots.txt', (row) => (row.robots_share === null ? '' : percent(row.robots_share)), 'number'],
    ['crawl delay', (row) => (row.crawl_delay_s === null ? '' : duration(row.crawl_delay_s)), 'number'],
    ['mean interval', (row) => (row.mean_interval_s === null ? '' : duration(row.mean_interval_s)), 'number'],
    ['violations', (row) => number(row.violations), 'number'],
  ];
  render(find('crawlers'), state.crawlers.length > 0
    ? table('Since the start, by operator', columns, state.crawlers)
    : h('p', {}, 'No crawler has sent a request.'));
}

function drawDecisions(decisions) {
  const columns = [
    ['time', (row) => explain(row.id, time(row.time)), 'nowrap'],
    ['client', (row) => [row.client, h('small', {}, [kind(row.kind), row.operator, row.class].filter(Boolean).join(', '))], 'wide'],
    ['request', (row) => [`${row.method} ${row.path}${row.query ? `?${row.query}` : ''}`, h('small', {}, row.user_agent || '(no user agent)')], 'wide'],
    ['status', (row) => row.status, 'number'],
    ['verdict', (row) => [row.verdict, row.shadow_reason ? h('small', {}, `shadow: ${row.shadow_reason}`) : row.reason ? h('small', {}, row.reason) : null]],
    ['evidence', (row) => row.evidence.join(', '), 'wide'],
  ];
  render(find('decisions'), decisions.length > 0 ? table('Latest first', columns, decisions) : h('p', {}, 'No stored decision matches.'));
}

function drawSwitches() {
  render(find('switches'), state.switches.length > 0 ? table('In effect', [
    ['target', (row) => row.target, 'wide'],
    ['effect', (row) => row.effect],
    ['since', (row) => moment(row.since)],
    ['until', (row) => (row.until ? moment(row.until) : 'switched off')],
    ['why', (row) => row.why ?? ''],
    ['by (unverified)', (row) => row.by ?? ''],
    ['from', (row) => row.peer ?? ''],
    ['end', (row) => h('button', { type: 'button', class: 'link', 'data-end': row.target, 'aria-label': `end: switch of ${row.target}` }, 'end')],
  ], state.switches) : h('p', {}, 'No switch is in effect.'));
}

function drawConfig() {
  const { settings, corrections } = state;
  render(find('config'),
    h('p', {}, `Loaded ${moment(settings.loaded_at)}. Listens on ${state.listen.join(', ')}.`),
    corrections.length > 0 ? table('Manual corrections', [
      ['at', (row) => moment(row.time)],
      ['quota', (row) => row.quota],
      ['was', (row) => number(row.from), 'number'],
      ['is', (row) => number(row.to), 'number'],
      ['by (unverified)', (row) => row.by ?? ''],
      ['from', (row) => row.peer ?? ''],
    ], corrections) : null);
}

function options(select, names, first) {
  const chosen = select.value;
  render(select, first ? h('option', { value: '' }, first) : null, names.map((name) => h('option', { value: name }, name)));
  select.value = names.includes(chosen) || first ? chosen : names[0] ?? '';
}

function draw() {
  const { version, revision } = state;
  render(find('about'), `${version}${revision && revision !== 'unknown' ? ` (${revision})` : ''}, up ${duration(state.uptime_s)}, ${new Date(state.time).toLocaleString()}`);
  drawProblems();
  drawQuotas();
  drawCache();
  drawClasses();
  drawSpenders();
  drawOrigin();
  drawCrawlers();
  drawSwitches();
  drawConfig();
  const filter = find('filter');
  options(filter.elements.class, state.classes, 'all');
  options(find('set-used').elements.quota, state.quotas.map(({ name }) => name));
  find('control').hidden = !mayWrite;
}

// Data

function connection(text, isLost) {
  const status = find('connection');
  status.classList.toggle('lost', isLost);
  if (status.textContent !== text) {
    status.textContent = text;
  }
}

function listen() {
  const events = new EventSource('/api/v1/events');
  let lostTimer = null;
  const show = (latest, text) => {
    clearTimeout(lostTimer);
    lostTimer = null;
    state = latest;
    connection(text, false);
    find('live').hidden = false;
    draw();
  };
  events.addEventListener('state', (event) => show(JSON.parse(event.data), 'Live'));
  events.addEventListener('error', () => {
    // A stream ends now and then; the browser connects again within a second.
    lostTimer ??= setTimeout(() => connection('No connection to the gateway; the figures are old', true), 4000);
    if (events.readyState === EventSource.CLOSED) {
      // Too many pages are open, or the session has ended.
      api('/api/v1/state').then((latest) => show(latest, 'Live, every 2 seconds'), () => {});
      setTimeout(start, 2000);
    }
  });
}

let hasChosenSpan = false;

async function pollHistory() {
  history = await api('/api/v1/history');
  // The clock of a demo runs fast: the last hour has next to nothing, the day has all.
  if (!hasChosenSpan && history.day.length > history.hour.length) {
    document.querySelector('input[name=span][value=day]').checked = true;
  }
}

async function pollDecisions() {
  if (state === null) {
    return;
  }
  const query = new URLSearchParams(new FormData(find('filter')));
  query.set('limit', '25');
  drawDecisions((await api(`/api/v1/decisions?${query}`)).decisions);
}

/** Calls `poll` now and `seconds` after each end. A failure shows as a lost connection anyway. */
function repeat(poll, seconds) {
  const again = () => setTimeout(() => repeat(poll, seconds), seconds * 1000);
  poll().then(again, again);
}

let isPolling = false;

async function start() {
  let session;
  try {
    session = await api('/api/v1/session');
  } catch {
    connection('No connection to the gateway', true);
    setTimeout(start, 2000);
    return;
  }
  mayWrite = session.may_write;
  find('login').hidden = session.may_read;
  find('logout').hidden = !(session.token_required && session.may_read);
  if (!session.may_read) {
    find('live').hidden = true;
    connection('Not logged in', false);
    return;
  }
  listen();
  if (!isPolling) {
    isPolling = true;
    repeat(pollHistory, 10);
    repeat(pollDecisions, 2);
  }
}

// Actions

async function showExplanation(id) {
  const text = find('explanation-text');
  try {
    const { request, steps, responses, remedies } = await api(`/api/v1/decisions/${id}/explanation`);
    const step = (found) => h('li', {}, h('strong', {}, `${found.step}: ${found.finding}`), ` ${found.message}`,
      found.rule ? h('small', {}, [found.rule.path, found.rule.at ?? 'by default'].join(', ')) : null);
    render(text,
      h('p', {}, `${request.method} ${request.host}${request.path}${request.query ? `?${request.query}` : ''} of ${request.client} at ${moment(request.time)}`),
      h('p', {}, request.user_agent || '(no user agent)'),
      h('p', {}, responses.map(({ verdict, reason, status }) => `${verdict}${reason ? ` (${reason})` : ''}${status ? `, status ${status}` : ''}`).join('; ')),
      h('ol', {}, steps.map(step)),
      remedies.length > 0 ? h('p', {}, 'Each of these alone would admit the request:') : null,
      remedies.length > 0 ? h('ul', {}, remedies.map(({ message }) => h('li', {}, message))) : null);
  } catch (error) {
    render(text, h('p', {}, error.message));
  }
  find('explanation').showModal();
}

/** Runs an action of the section "Control" and shows its result. */
async function act(action) {
  try {
    find('control-result').textContent = await action();
  } catch (error) {
    find('control-result').textContent = error.message;
  }
}

document.addEventListener('click', (event) => {
  const { explain: id } = event.target.closest('[data-explain]')?.dataset ?? {};
  if (id) {
    showExplanation(id);
  }
  const { end: target } = event.target.closest('[data-end]')?.dataset ?? {};
  if (target) {
    act(async () => {
      await send('DELETE', `/api/v1/switches/${encodeURIComponent(target)}`, {});
      return `${target}: switched off`;
    });
  }
});

document.addEventListener('change', (event) => {
  if (event.target.name === 'span') {
    hasChosenSpan = true;
    if (state !== null) {
      draw();
    }
  }
});

find('filter').addEventListener('input', () => pollDecisions().catch(() => {}));
find('filter').addEventListener('submit', (event) => event.preventDefault());

find('login').addEventListener('submit', async (event) => {
  event.preventDefault();
  find('login-error').textContent = '';
  try {
    await send('POST', '/api/v1/session', { token: find('token').value });
    find('token').value = '';
    await start();
  } catch (error) {
    find('login-error').textContent = error.message;
  }
});

find('logout').addEventListener('click', async () => {
  await api('/api/v1/session', { method: 'DELETE' });
  location.reload();
});

find('set-used').addEventListener('submit', (event) => {
  event.preventDefault();
  const { quota, used } = event.target.elements;
  act(async () => {
    const { name, from, to } = await send('PUT', `/api/v1/quotas/${encodeURIComponent(quota.value)}/used`, { used: used.value.trim() });
    return `${name}: ${number(to)} used, ${number(from)} before`;
  });
});

find('set-switch').addEventListener('submit', (event) => {
  event.preventDefault();
  const { effect, target, minutes, why } = event.target.elements;
  act(async () => {
    const isMaintenance = effect.value === 'maintenance';
    const seconds = Math.round(minutes.valueAsNumber * 60);
    if (!Number.isFinite(seconds)) {
      throw new Error('Give the duration in minutes.');
    }
    const running = state.switches.find((active) => active.effect === 'maintenance');
    const set = await send('POST', '/api/v1/switches', {
      target: isMaintenance ? effect.value : target.value.trim(),
      effect: effect.value,
      for_s: seconds,
      except: isMaintenance ? running?.except ?? [] : [],
      why: why.value.trim(),
    });
    return switchText(set);
  });
});

find('reload').addEventListener('click', () => act(async () => `Reloaded: ${(await send('POST', '/api/v1/reload', {})).summary}`));

start();
