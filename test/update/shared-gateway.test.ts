import { describe, expect, it, onTestFinished } from 'vitest';
import { type Turns, UpdateTurns } from '../../src/gateway/offline/update-turns.ts';
import type { Node } from '../../src/gateway/store/shared/postgres.ts';
import { obstacleOf } from '../../src/update/shared-gateway.ts';
import { startClusterNode } from '../support/cluster-node.ts';
import { NO_POSTGRES, PostgresServer } from '../support/postgres-server.ts';
import { unless } from '../support/requirements.ts';

const NOW = Date.UTC(2026, 0, 1, 12);
const [ONE, TWO] = ['one', 'two'].map((id) => ({ id, address: `${id}:443` })) as [Place, Place];
type Place = { id: string; address: string };
const node = (place: Place, differing: Partial<Node> = {}): Node => ({
  ...{ ...place, alone: false, build: '1.2.3', applied: 7, draining: false, silentSeconds: 1, renewedAt: NOW },
  ...differing,
});
const agoMin = (minutes: number) => new Date(NOW - minutes * 60_000).toISOString();
const turns = (differing: Partial<Turns> = {}): Turns => ({
  ...{ turn: null, givenUp: null, nodes: [node(ONE), node(TWO)], now: NOW },
  ...differing,
});
const turnOf = ({ id, address }: Place, minutes = 1) =>
  ({ node: id, address, version: '1.2.4', at: agoMin(minutes), state: 'trying' }) as const;
const givenUp = { node: TWO.id, address: TWO.address, version: '1.2.4', at: agoMin(60), reason: 'it did not answer' };
const STEP = { from: '1.2.3', to: '1.2.4', isAutomatic: true, isNamed: false };

describe('a gateway of several that wants to update itself', () => {
  it('may when the others serve with a version next to its new one', () => {
    for (const build of ['1.1.9', '1.2.3', '1.2.4', '1.3.0'])
      expect(obstacleOf(turns({ nodes: [node(ONE), node(TWO, { build })] }), ONE, STEP)).toBe(null);
    expect(obstacleOf(turns({ turn: turnOf(ONE) }), ONE, STEP)).toBe(null);
  });

  it.each(['1.0.9', '1.4.0', '2.2.4', '0.2.4'])('is refused beside one of version %s', (build) => {
    const obstacle = obstacleOf(turns({ nodes: [node(ONE), node(TWO, { build })] }), ONE, STEP);
    expect(obstacle).toMatchObject({
      kind: 'refused',
      reason: expect.stringContaining(`two:443 runs version ${build}`),
    });
  });

  it('is told to remove one that is lost, and has such a version', () => {
    const lost = node(TWO, { build: '1.0.9', silentSeconds: 3_000 });
    expect(obstacleOf(turns({ nodes: [node(ONE), lost] }), ONE, STEP)?.reason).toMatch(/ gateway nodes remove two$/);
  });

  it('waits for one that has its turn, and is told what to do when that does not come back', () => {
    const busy = obstacleOf(turns({ turn: turnOf(TWO) }), ONE, STEP);
    expect(busy).toEqual({
      kind: 'wait',
      reason: 'the gateway two:443 has its turn for version 1.2.4, since 1 min',
    });
    const lost = obstacleOf(turns({ turn: turnOf(TWO, 20), nodes: [node(ONE)] }), ONE, STEP);
    expect(lost?.reason).toMatch(/if its machine is lost, run: .+ gateway nodes remove two$/);
  });

  it('is refused a version that another one has given up, unless somebody names it', () => {
    expect(obstacleOf(turns({ givenUp }), ONE, STEP)).toEqual({
      kind: 'refused',
      reason: 'the gateway two:443 has given up version 1.2.4: it did not answer; to try it here: --to 1.2.4',
    });
    expect(obstacleOf(turns({ givenUp }), ONE, { ...STEP, isNamed: true })).toBe(null);
    expect(obstacleOf(turns({ givenUp }), ONE, { ...STEP, to: '1.2.5' })).toBe(null);
  });

  it('waits while another one is drained; only when nobody asks for it, also while another one is silent', () => {
    const drained = turns({ nodes: [node(ONE), node(TWO, { draining: true })] });
    expect(obstacleOf(drained, ONE, { ...STEP, isAutomatic: false })?.kind).toBe('wait');
    const silent = turns({ nodes: [node(ONE), node(TWO, { silentSeconds: 60 })] });
    expect(obstacleOf(silent, ONE, STEP)?.kind).toBe('wait');
    expect(obstacleOf(silent, ONE, { ...STEP, isAutomatic: false })).toBe(null);
  });
});

describe('the turns in a shared database', unless(NO_POSTGRES), () => {
  const shared = async () => {
    const database = await PostgresServer.start();
    onTestFinished(() => database.end());
    const gateway = await startClusterNode(database.url());
    onTestFinished(gateway.close);
    return <T>(work: (turns: UpdateTurns) => Promise<T>) => UpdateTurns.use(database.url(), work);
  };
  const claim = (id: string) => (found: UpdateTurns) =>
    found.change(({ turn, now }) => {
      const isFree = turn === null;
      const at = new Date(now).toISOString();
      const own = { node: id, address: `${id}:443`, version: '1.2.4', at, state: 'trying' } as const;
      return { changes: isFree ? { turn: own } : null, result: isFree };
    });

  it('are given to one gateway of many that ask at the same moment, and to another one when it is removed', async () => {
    const withTurns = await shared();
    const got = await Promise.all(Array.from({ length: 8 }, (_, at) => withTurns(claim(`node-${at}`))));
    expect(got.filter(Boolean)).toHaveLength(1);
    const winner = `node-${got.indexOf(true)}`;
    expect((await withTurns((found) => found.read())).turn?.node).toBe(winner);
    expect(await withTurns((found) => found.removed('another'))).toBe(null);
    expect((await withTurns((found) => found.removed(winner)))?.node).toBe(winner);
    expect(await withTurns((found) => found.read())).toMatchObject({
      turn: null,
      givenUp: { node: winner, version: '1.2.4', reason: 'it was removed in its turn' },
    });
    expect(await withTurns(claim('next'))).toBe(true);
  });
});
