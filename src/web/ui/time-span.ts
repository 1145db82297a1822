import { type ReadonlySignal, signal } from '@preact/signals';
import { shared } from '../strings.ts';

const TICK_MS = 5_000;
const time = signal(Date.now());
window.setInterval(() => {
  if (!document.hidden) time.value = Date.now();
}, TICK_MS);
document.addEventListener('visibilitychange', () => {
  time.value = Date.now();
});

/** The present, to the nearest few seconds, in milliseconds since the Unix epoch. */
export const present: ReadonlySignal<number> = time;

/** A duration in its largest unit. */
export function span(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 120) return shared.seconds(seconds);
  if (seconds < 7_200) return shared.minutes(Math.floor(seconds / 60));
  if (seconds < 172_800) return shared.hours(Math.floor(seconds / 3_600));
  return shared.days(Math.floor(seconds / 86_400));
}

/** How long it is since a moment, as an ISO date or in milliseconds. */
export function spanSince(moment: string | number): string {
  return span(present.value - new Date(moment).getTime());
}

/** How long ago a moment was. */
export function ago(moment: string | number): string {
  const ms = present.value - new Date(moment).getTime();
  return ms < TICK_MS ? shared.now : shared.ago(span(ms));
}
