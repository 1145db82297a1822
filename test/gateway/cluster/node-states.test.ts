import { expect, it } from 'vitest';
import { Nodes, PERIODS } from '../../../src/gateway/cluster/nodes.ts';
import type { Node } from '../../../src/gateway/store/shared/postgres.ts';

const HOUR_MS = 3_600_000;
const EPOCH = Date.UTC(2026, 0, 1);

/**
 * Two nodes, as one of them knows them; only the database's clock can be set.
 *
 * @param renewedAt when the other one renewed its entry last; 0: it does when it is asked for the first time
 */
function twoNodes(renewedAt = 0) {
  let [now, databaseAhead] = [0, EPOCH];
  const others = { renewedAt };
  const nodes = new Nodes('self', PERIODS, () => now);
  const node = (id: string, renewedAt: number): Node => ({
    ...{ id, address: '127.0.0.1:1', alone: false, build: '', applied: 0, draining: false },
    renewedAt,
    silentSeconds: (now + databaseAhead - renewedAt) / 1000,
  });
  return {
    nodes,
    /** The node asks for all, and `other` has just renewed its entry too, or is silent. */
    pass(ms: number, { otherRenews = true } = {}) {
      for (const end = now + ms; now < end; ) {
        now += PERIODS.renewMs;
        if (otherRenews || others.renewedAt === 0) others.renewedAt = now + databaseAhead;
        nodes.update([node('self', now + databaseAhead), node('other', others.renewedAt)], now, ['other']);
      }
    },
    setDatabaseClock(byMs: number) {
      databaseAhead += byMs;
    },
    putDatabaseBack(byMs: number) {
      others.renewedAt -= byMs;
    },
  };
}

it('a node that says nothing is silent after 10 s, and its names are free after an hour', () => {
  const { nodes, pass } = twoNodes();
  pass(HOUR_MS);
  pass(8_000, { otherRenews: false });
  expect(nodes.state('other')).toBe('serving');
  pass(4_000, { otherRenews: false });
  expect(nodes.state('other')).toBe('silent');
  pass(HOUR_MS, { otherRenews: false });
  expect(nodes.state('other')).toBe('gone');
});

it("a database whose clock is set frees nobody's names", () => {
  const { nodes, pass, setDatabaseClock } = twoNodes();
  pass(2 * HOUR_MS);
  setDatabaseClock(2 * HOUR_MS);
  pass(PERIODS.renewMs, { otherRenews: false });
  expect(nodes.state('other')).toBe('serving');
  pass(PERIODS.renewMs);
  expect(nodes.state('other')).toBe('serving');
});

it("a database that is put back to an older state frees nobody's names", () => {
  const { nodes, pass, putDatabaseBack } = twoNodes();
  pass(3 * HOUR_MS);
  putDatabaseBack(2 * HOUR_MS);
  pass(PERIODS.renewMs, { otherRenews: false });
  expect(nodes.state('other')).toBe('serving');
  pass(PERIODS.silentMs, { otherRenews: false });
  expect(nodes.state('other')).toBe('silent');
});

it('nothing goes to a gateway that has said nothing since this one started: the database may be a copy', () => {
  const { nodes, pass } = twoNodes(EPOCH - HOUR_MS);
  pass(PERIODS.renewMs, { otherRenews: false });
  expect(nodes.state('other')).toBe('serving');
  expect([nodes.place('other'), nodes.others()]).toEqual([undefined, []]);
  pass(PERIODS.renewMs);
  expect(nodes.place('other')).toMatchObject({ id: 'other' });
});

it('nodes agree on the time by the clock of the database', () => {
  const { nodes, pass } = twoNodes();
  pass(10_000);
  expect(nodes.sharedTime).toBe(EPOCH + 10_000);
});

it('a node that could not be reached comes after others until it has answered', () => {
  const { nodes, pass } = twoNodes();
  pass(2_000);
  nodes.failed('other');
  pass(60_000);
  expect(nodes.isUnreachable('other')).toBe(true);
  nodes.answered('other');
  expect(nodes.isUnreachable('other')).toBe(false);
});
