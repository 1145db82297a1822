import { expect, it } from 'vitest';
import { WireEstimate } from '../../../src/agent/connectors/wire-estimate.ts';

/**
 * Packets of an idle session with a gateway 60 ms away, as captured on Linux: milliseconds, direction, bytes of TLS. Without any, it is an
 * acknowledgement. Heartbeats become rarer: the gateway is asked for that twice.
 */
const CAPTURED = [
  [13_550, 'out', 53],
  [13_614, 'in', 49],
  [13_614, 'out', 0],
  [13_616, 'out', 30],
  [13_717, 'in', 0],
  [23_058, 'out', 34],
  [23_120, 'in', 0],
  [23_120, 'in', 34],
  [23_167, 'out', 0],
  [30_672, 'out', 34],
  [30_734, 'in', 34],
  [30_734, 'out', 0],
  [38_275, 'out', 34],
  [38_337, 'in', 34],
  [38_337, 'out', 0],
  [40_177, 'out', 54],
  [40_239, 'in', 50],
  [40_239, 'out', 0],
  [40_241, 'out', 30],
  [40_343, 'in', 0],
  [57_298, 'out', 34],
  [57_362, 'in', 0],
  [57_363, 'in', 34],
  [57_409, 'out', 0],
  [72_514, 'out', 34],
  [72_577, 'in', 34],
  [72_577, 'out', 0],
  [87_730, 'out', 34],
  [87_791, 'in', 34],
  [87_791, 'out', 0],
] as const;
const HEADERS = 52;

it('counts as many bytes of an idle session as were captured', () => {
  const socket = { bytesRead: 0, bytesWritten: 0, remoteFamily: 'IPv4' };
  const estimate = new WireEstimate(socket);
  let [captured, counted] = [0, 0];
  for (const [at, direction, bytes] of CAPTURED) {
    captured += HEADERS + bytes;
    if (bytes === 0) continue;
    socket[direction === 'in' ? 'bytesRead' : 'bytesWritten'] += bytes;
    counted += estimate.sample(at).wire;
  }
  expect(counted).toBe(captured);
});
