// The live page: draws the state that the gateway sends once a second. docs/reference/ADMIN_API.md has the API behind it.

import { api, connect } from './actions.js';
import { decisions, spenders } from './decisions.js';
import { h, render } from './dom.js';
import { date, duration } from './format.js';
import { configuration, crawlers, originSection, problems, switches } from './origin.js';
import { quotas } from './quotas.js';
import { addState, isFast, setHistory } from './samples.js';
import { cache, classes, routes } from './traffic.js';

const find = (id) => document.getElementById(id);

let state = null;
let mayWrite = false;
let hasChosenSpan = false;
let isPolling = false;
let shownDecisions = null;

const span = () => document.querySelector('input[name=span]:checked').value;

function options(select, names, first) {
  const chosen = select.value;
  render(select, first ? h('option', { value: '' }, first) : null, names.map((name) => h('option', { value: name }, name)));
  select.value = names.includes(chosen) || first ? chosen : names[0] ?? '';
}

function draw() {
  const { version, revision } = state;
  render(find('about'), `${version}${revision && revision !== 'unknown' ? ` (${revision})` : ''}, up ${duration(state.uptime_s)}, ${date(state.time)}`);
  render(find('problems'), problems(state));
  render(find('quotas'), quotas(state));
  find('cache-section').hidden = !state.cache;
  render(find('cache'), state.cache ? cache(state, span()) : null);
  render(find('classes'), classes(state, span()));
  render(find('routes'), routes(state));
  if (shownDecisions !== null) {
    // The same rows: only what can be done about their clients may have changed.
    render(find('decisions'), decisions(state, shownDecisions));
  }
  render(find('spenders'), spenders(state));
  render(find('origin'), originSection(state));
  render(find('crawlers'), crawlers(state));
  render(find('switches'), switches(state));
  render(find('config'), configuration(state));
  options(find('filter').elements.class, state.classes, 'all');
  options(find('set-used').elements.quota, state.quotas.map(({ name }) => name));
  find('control').hidden = !mayWrite;
}

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
    addState(state);
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

async function pollHistory() {
  setHistory(await api('/api/v1/history'));
  if (!hasChosenSpan && isFast()) {
    document.querySelector('input[name=span][value=day]').checked = true;
  }
}

/** Returns true while the pointer or the focus is on a row, which must not move away meanwhile. */
const isHeld = () => find('decisions').matches(':hover, :focus-within') || find('block').open;

async function pollDecisions(isAsked = false) {
  find('held').hidden = isAsked || !isHeld();
  if (state === null || !find('held').hidden) {
    return;
  }
  const query = new URLSearchParams(new FormData(find('filter')));
  query.set('limit', '25');
  const found = await api(`/api/v1/decisions?${query}`);
  if (isAsked || !isHeld()) {
    shownDecisions = found.decisions;
    render(find('decisions'), decisions(state, shownDecisions));
  }
}

/** Calls `poll` now and `seconds` after each end. A failure shows as a lost connection anyway. */
function repeat(poll, seconds) {
  const again = () => setTimeout(() => repeat(poll, seconds), seconds * 1000);
  poll().then(again, again);
}

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
    repeat(pollHistory, 30);
    repeat(pollDecisions, 2);
  }
}

document.addEventListener('change', (event) => {
  if (event.target.name === 'span') {
    hasChosenSpan = true;
    if (state !== null) {
      draw();
    }
  }
});

find('filter').addEventListener('input', () => pollDecisions(true).catch(() => {}));
find('filter').addEventListener('submit', (event) => event.preventDefault());

connect(() => ({ state, mayWrite }), start);
start();
