import type { Device } from './resources/device.ts';

/** A device that is away by plan may be so much later than it has said: its agent tries every 20 s. */
export const OVERDUE_MS = 3 * 60_000;

/** Whether a device that has joined is online; `away`: it is not, by plan. */
export function presenceOf(
  { online_since, last_seen_at, data_budget }: Pick<Device, 'online_since' | 'last_seen_at' | 'data_budget'>,
  now: number,
): 'online' | 'offline' | 'away' | 'never' {
  if (online_since !== null) return 'online';
  if (data_budget?.back_at && Date.parse(data_budget.back_at) + OVERDUE_MS > now) return 'away';
  return last_seen_at === null ? 'never' : 'offline';
}
