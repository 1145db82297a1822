import { expect, it } from 'vitest';
import { UpstreamOutage } from '../../../src/agent/upstreams/upstream-outage.ts';
import { recordingLog } from '../../support/silent-log.ts';

it('an unreachable upstream is logged at once, then every ten minutes, and when it answers again', () => {
  const { log, lines } = recordingLog();
  let minutes = 0;
  const outage = new UpstreamOutage('localhost:8001', log, () => minutes * 60_000);
  outage.answered();
  for (; minutes < 15; minutes++) outage.failed('connect ECONNREFUSED 127.0.0.1:8001');
  outage.answered();
  outage.answered();
  outage.failed('no connection');
  expect(lines.map(({ level, msg, times }) => [level, msg, times])).toEqual([
    [40, 'upstream unreachable', 1],
    [40, 'upstream unreachable', 10],
    [30, 'upstream reachable again', undefined],
    [40, 'upstream unreachable', 1],
  ]);
});
