import { type ReadonlySignal, signal } from '@preact/signals';

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
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7_200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3_600)} h`;
  return `${Math.floor(seconds / 86_400)} days`;
}

/** How long it is since a moment, as an ISO date or in milliseconds. */
export function spanSince(moment: string | number): string {
  return span(present.value - new Date(moment).getTime());
}

/** How long ago a moment was. */
export function ago(moment: string | number): string {
  const ms = present.value - new Date(moment).getTime();
  return ms < TICK_MS ? 'just now' : `${span(ms)} ago`;
}
