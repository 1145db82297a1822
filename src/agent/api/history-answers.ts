import { SLOT_SECONDS } from '../../agent-protocol/messages.ts';
import { type DeviceHistory, ofTunnel, type Slot } from '../history/device-history.ts';
import type { Tunnel } from '../tunnels/tunnel.ts';

type Slots = Pick<DeviceHistory, 'slots'>;

/** How the device was in the last day. */
export function deviceHistory({ slots }: Slots) {
  return answer(slots, ({ online, sessions, temperature, freeMemory, freeDisk, signal }) => ({
    ...{ online_seconds: online, sessions, temperature_celsius: temperature },
    ...{ available_memory_bytes: freeMemory, available_disk_bytes: freeDisk, wireless_signal_dbm: signal },
  }));
}

/** What has happened to a tunnel in the last day, since it was created. */
export function tunnelHistory({ slots }: Slots, { id, created_at }: Pick<Tunnel, 'id' | 'created_at'>) {
  const present = slots.filter(({ at }) => (at + SLOT_SECONDS) * 1000 > Date.parse(created_at));
  return answer(present, (slot) => {
    const [online_seconds, requests, received_bytes, sent_bytes] = ofTunnel(slot, id);
    return { online_seconds, requests, received_bytes, sent_bytes };
  });
}

function answer<Point>(slots: readonly Slot[], shown: (slot: Slot) => Point) {
  const points = slots.map((slot) => ({ at: iso(slot.at), known_seconds: slot.ran, ...shown(slot) }));
  const to = new Date().toISOString();
  return { from: points[0]?.at ?? to, to, step: 'ten minutes' as const, points };
}

function iso(seconds: number): string {
  return new Date(seconds * 1000).toISOString();
}
