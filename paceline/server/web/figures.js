// Figures of the latest reply and of the server. A share of three tokens says nothing: until there are enough, a figure
// is being measured.
import { byId, count, isNumber, percent, share, speed, times } from "./dom.js";

const ENOUGH_WRITTEN = 20;
const ENOUGH_DRAFTED = 30;
const ENOUGH_SERVED = 200;
const MEASURING = "measuring";
const NONE = "–";

/** The reply's own, while it streams and after. */
export function showReplyFigures(timings, streams) {
  show("speed", timings?.predicted_n >= ENOUGH_WRITTEN ? speed(timings.predicted_per_second) : unknown(streams));
  show("accepted", timings?.draft_n >= ENOUGH_DRAFTED ? accepted(timings) : unknown(streams));
}

const unknown = (streams) => (streams ? MEASURING : NONE);

/** The planner's estimate, over everything the server has written. */
export function showSpeedup(stats) {
  const n = stats.n_predicted ?? ENOUGH_SERVED; // an older server does not tell
  if (!n || !isNumber(stats.speedup)) show("speedup", NONE);
  else show("speedup", n < ENOUGH_SERVED ? MEASURING : times(stats.speedup));
}

/** The share of a drafter's tokens that was accepted. */
export function acceptance(nAccepted, nDrafted) {
  if (!nDrafted) return NONE;
  return nDrafted < ENOUGH_DRAFTED ? MEASURING : percent(share(nAccepted, nDrafted));
}

/** A reply in words. */
export function summary(timings) {
  if (!isNumber(timings?.predicted_n)) return [];
  const parts = [`${count(timings.predicted_n)} tokens`];
  if (timings.predicted_n >= ENOUGH_WRITTEN) parts.push(`${speed(timings.predicted_per_second)} tokens/s`);
  if (timings.draft_n > 0) parts.push(`${count(timings.draft_n_accepted)} of ${count(timings.draft_n)} drafted accepted`);
  if (timings.draft_n >= ENOUGH_DRAFTED) parts[parts.length - 1] += ` (${accepted(timings)})`;
  return parts;
}

const accepted = (timings) => percent(share(timings.draft_n_accepted, timings.draft_n));

function show(id, text) {
  byId(id).textContent = text;
  byId(id).classList.toggle("measuring", text === MEASURING);
}
