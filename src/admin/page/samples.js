// What the charts are drawn of: the history that the gateway keeps, and the states received since.

export const SPANS = { hour: 3600e3, day: 86400e3 };

/** States to remember between two requests of the history. */
const MAX_RECENT = 400;
const MAX_POINTS = 600;

let history = { hour: [], day: [], month: [] };
let recent = [];

const timed = (sample) => ({ ...sample, at: Date.parse(sample.time) });

export function setHistory(latest) {
  history = { hour: latest.hour.map(timed), day: latest.day.map(timed), month: latest.month.map(timed) };
}

/** Returns the units that the cache has saved, by quota. */
export function savedByQuota({ saved }) {
  const sums = {};
  for (const { quota, units } of saved) {
    sums[quota] = (sums[quota] ?? 0) + units;
  }
  return sums;
}

/** Remembers a state as a sample. */
export function addState(state) {
  recent.push(timed({
    time: state.time,
    quotas: state.quotas.map(({ name, used, limit, pacing }) => ({ name, used, limit, planned: pacing?.planned ?? null })),
    classes: state.traffic.map(({ class: name, admitted, refused, shadow_refused }) => ({ name, admitted, refused, shadow_refused })),
    responses: { statuses: state.responses.statuses, bytes: state.responses.bytes, latency: state.latency.map(({ requests }) => requests) },
    cache: state.cache ? { requests: state.cache.requests, answered: state.cache.answered, saved: savedByQuota(state.cache) } : null,
  }));
  recent = recent.slice(-MAX_RECENT);
}

/** Returns the first of the samples, and each that is `spacing` after the one before it; and the last one. */
function thinned(samples, spacing) {
  const kept = [];
  samples.forEach((sample, index) => {
    if (kept.length === 0 || sample.at - kept.at(-1).at >= spacing || index === samples.length - 1) {
      kept.push(sample);
    }
  });
  return kept;
}

/** Returns the samples of the last hour or day, oldest first, the current state last. */
export function samplesOf(span) {
  const to = recent.at(-1).at;
  const stored = history[span];
  const since = stored.at(-1)?.at ?? -Infinity;
  // Also a state of the same time as the last sample: the current one is always the last.
  const all = stored.concat(recent.filter(({ at }) => at >= since));
  return thinned(all.filter(({ at }) => at >= to - SPANS[span] && at <= to), SPANS[span] / 400);
}

/** Returns the samples of a quota since a time, from all that is known. */
export function usageOf(name, from, to) {
  const all = [...history.month, ...history.day, ...history.hour, ...recent].filter(({ at }) => at >= from && at <= to);
  all.sort((one, other) => one.at - other.at);
  return thinned(all, (to - from) / MAX_POINTS).flatMap(({ at, quotas }) => {
    const found = quotas.find((quota) => quota.name === name);
    return found ? [{ at, ...found }] : [];
  });
}

/** Returns the first sample of the day, or since, at or after a time, of those that have counts of the cache. */
export function firstCachedSince(start) {
  const counted = [...history.day, ...recent].filter(({ at, cache }) => cache && at >= start);
  return counted.reduce((first, sample) => (first && first.at <= sample.at ? first : sample), undefined);
}

/** Returns true if the day has more samples than the hour: the clock of a demo runs fast. */
export const isFast = () => history.day.length > history.hour.length;

/** Returns how much a count grew between two samples each, in `per` milliseconds. */
export function rates(samples, count, per) {
  const counted = samples.flatMap((sample) => {
    const found = count(sample);
    return found === undefined ? [] : [[sample.at, found]];
  });
  return counted.slice(1).flatMap(([at, total], index) => {
    const [before, earlier] = counted[index];
    // The last sample is the current state, and may be a moment after the one before it.
    return at - before < 5000 ? [] : [[at, (Math.max(total - earlier, 0) * per) / (at - before)]];
  });
}

/** Returns the time that a share of the requests between two samples each did not exceed, in milliseconds. */
export function quantiles(samples, bounds, share) {
  return samples.slice(1).flatMap((sample, index) => {
    const [earlier, later] = [samples[index].responses?.latency, sample.responses?.latency];
    if (!earlier || !later || sample.at - samples[index].at < 5000) {
      return [];
    }
    const found = quantile(later.map((count, bucket) => Math.max(count - earlier[bucket], 0)), bounds, share);
    return found === null ? [] : [[sample.at, found]];
  });
}

function quantile(counts, bounds, share) {
  const wanted = share * counts.reduce((sum, count) => sum + count, 0);
  let below = 0;
  for (const [bucket, count] of counts.entries()) {
    if (count > 0 && below + count >= wanted) {
      const low = bucket > 0 ? bounds[bucket - 1] : 0;
      const high = bounds[bucket] ?? low;
      return low + (high - low) * ((wanted - below) / count);
    }
    below += count;
  }
  return null;
}
