// What the page changes: switches, usage, configuration, and the session; and the dialogs about a decision and a client.

import { isPrivate, networkOf } from './address.js';
import { h, render } from './dom.js';
import { moment, number } from './format.js';
import { switchText } from './origin.js';

const find = (id) => document.getElementById(id);

export async function api(path, options) {
  const response = await fetch(path, options);
  const body = await response.json();
  if (!response.ok) {
    throw Object.assign(new Error(body.detail ?? response.statusText), { status: response.status });
  }
  return body;
}

const send = (method, path, body) => api(path, { method, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });

async function showExplanation(id, now) {
  const text = find('explanation-text');
  try {
    const { request, steps, responses, remedies } = await api(`/api/v1/decisions/${id}/explanation`);
    const step = (found) => h('li', {}, h('strong', {}, `${found.step}: ${found.finding}`), ` ${found.message}`,
      found.evidence.length > 0 ? h('ul', {}, found.evidence.map((sentence) => h('li', {}, sentence))) : null,
      found.rule ? h('small', {}, [found.rule.path, found.rule.at ?? 'by default'].join(', ')) : null);
    render(text,
      h('p', {}, `${request.method} ${request.host}${request.path}${request.query ? `?${request.query}` : ''} of ${request.client} at ${moment(request.time, now)}`),
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

/** Asks what to block, for how long and why. Who may change nothing is told the command. */
function askToBlock({ block: address, operator, words }, mayWrite) {
  const form = find('block-form');
  const targets = [[address, `${address}`], [networkOf(address), `its network ${networkOf(address)}`], ...(operator ? [[`operator:${operator}`, `the crawlers of ${operator}`]] : [])];
  render(form.elements.target, targets.map(([value, text]) => h('option', { value }, text)));
  form.elements.target.value = address;
  form.elements.why.value = `seen on the live page as ${words}`.slice(0, 100);
  find('block-title').textContent = `Block ${address}`;
  find('block-warning').hidden = !isPrivate(address);
  find('block-error').textContent = '';
  find('block-now').hidden = !mayWrite;
  find('block-command').hidden = mayWrite;
  showCommand();
  find('block').showModal();
}

/** Shows the command that sets the switch of the form. */
function showCommand() {
  const { target, seconds, why } = find('block-form').elements;
  const length = { 900: '15m', 3600: '1h', 86400: '1d', 604800: '7d' }[seconds.value];
  // Within single quotes, a shell reads all but the quote itself as it is.
  find('block-text').textContent = `tidegate block ${target.value} --for ${length} --why '${why.value.replaceAll("'", '')}'`;
}

async function setBlock() {
  const { target, seconds, why } = find('block-form').elements;
  try {
    const set = await send('POST', '/api/v1/switches', { target: target.value, effect: 'block', for_s: Number(seconds.value), why: why.value.trim() });
    find('control-result').textContent = switchText(set, set.since);
    find('block').close();
  } catch (error) {
    find('block-error').textContent = error.message;
  }
}

/** Runs an action of the section "Control" and shows its result. */
async function act(action) {
  try {
    find('control-result').textContent = await action();
  } catch (error) {
    find('control-result').textContent = error.message;
  }
}

function setSwitch({ effect, target, minutes, why }, state) {
  return act(async () => {
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
    return switchText(set, state.time);
  });
}

/**
 * Connects the buttons and forms. `current` returns the state and whether this browser may change it; `start` begins anew
 * after a login.
 */
export function connect(current, start) {
  document.addEventListener('click', (event) => {
    const found = (name) => event.target.closest(`[data-${name}]`)?.dataset;
    const [explained, blocked, ended] = ['explain', 'block', 'end'].map(found);
    if (explained) {
      showExplanation(explained.explain, current().state.time);
    } else if (blocked) {
      askToBlock(blocked, current().mayWrite);
    } else if (ended) {
      act(async () => {
        await send('DELETE', `/api/v1/switches/${encodeURIComponent(ended.end)}`, {});
        return `${ended.end}: switched off`;
      });
    }
  });
  find('block-form').addEventListener('input', showCommand);
  find('block-form').addEventListener('submit', (event) => {
    event.preventDefault();
    if (event.submitter?.value === 'cancel') {
      find('block').close();
    } else if (current().mayWrite) {
      setBlock();
    }
  });
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
    setSwitch(event.target.elements, current().state);
  });
  find('reload').addEventListener('click', () => act(async () => `Reloaded: ${(await send('POST', '/api/v1/reload', {})).summary}`));
}
