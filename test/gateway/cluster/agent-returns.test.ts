import { describe, expect, it } from 'vitest';
import { AgentReturns } from '../../../src/gateway/cluster/agent-returns.ts';
import type { Nodes } from '../../../src/gateway/cluster/nodes.ts';
import type { OnlineRow } from '../../../src/gateway/cluster/online-rows.ts';
import { silentLog } from '../../support/silent-log.ts';

/** One gateway's view of others with so many sessions each. */
function gatewayWith(count: number, others: Record<string, number>) {
  let now = 0;
  const open = new Set(Object.keys(others));
  const state = { count, others, onTrial: null as string | null, isDraining: false, moves: [] as number[] };
  const node = (id: string) => ({ id, address: `${id}:443` });
  const nodes = {
    self: 'self',
    isDraining: () => state.isDraining,
    others: () => [...open].map(node),
    all: Object.keys(others).map(node),
  } as unknown as Nodes;
  const rows = {
    of: (id: string) =>
      Array.from({ length: state.others[id] ?? 0 }, (_, at) => ({ key: `${id} ts_${at}` }) as OnlineRow),
  };
  const returns = new AgentReturns({ nodes, rows, log: silentLog }, { onTrial: () => state.onTrial, now: () => now });
  const look = (goTo: string | null) => {
    now += 1_000;
    const before = state.moves.length;
    returns.look({
      count: state.count,
      move: (most) => {
        state.moves.push(most);
        return most;
      },
    });
    if (goTo === null || state.moves.length === before) return;
    const moved = state.moves.at(-1) ?? 0;
    state.count -= moved;
    state.others[goTo] = (state.others[goTo] ?? 0) + moved;
  };
  return Object.assign(state, {
    pass(seconds: number, goTo: string | null) {
      for (let second = 0; second < seconds; second++) look(goTo);
    },
    leaves: (id: string) => void open.delete(id),
    isBack: (id: string) => {
      open.delete(id);
      look(null);
      open.add(id);
    },
  });
}

describe('agents with one session, when a gateway comes back', () => {
  it('go there until it has its share, the first few before the others', () => {
    const gateway = gatewayWith(90, { one: 0 });
    gateway.pass(60, 'one');
    expect(gateway.moves, 'a gateway that was there all the time').toEqual([]);
    gateway.isBack('one');
    gateway.pass(120, 'one');
    expect([gateway.moves, gateway.count]).toEqual([[3, 10, 32], 45]);
  });

  it('stay when the first ones go elsewhere three times', () => {
    const gateway = gatewayWith(90, { one: 0 });
    gateway.isBack('one');
    gateway.pass(120, null);
    expect(gateway.moves).toEqual([3, 3, 3]);
  });

  it('leave each gateway by its part of what is missing', () => {
    const gateway = gatewayWith(60, { one: 0, two: 30 });
    gateway.isBack('one');
    gateway.pass(10, 'one');
    expect(gateway.moves[0]).toBe(3);
    gateway.pass(120, 'one');
    expect(
      gateway.moves.reduce((sum, each) => sum + each, 0),
      'the average is 30',
    ).toBe(30);
  });

  it('wait until its new version is confirmed, but for the first ones; one goes even where there is no other', () => {
    const gateway = gatewayWith(90, { one: 0 });
    gateway.onTrial = 'one';
    gateway.isBack('one');
    gateway.pass(60, 'one');
    expect(gateway.moves).toEqual([3]);
    gateway.onTrial = null;
    gateway.pass(60, 'one');
    expect(gateway.moves).toEqual([3, 10, 32]);
    const alone = gatewayWith(1, { one: 0 });
    alone.onTrial = 'one';
    alone.isBack('one');
    alone.pass(60, 'one');
    expect(alone.moves).toEqual([1]);
  });

  it('are not moved by a gateway that is emptied itself, nor to one that is gone again', () => {
    const gateway = gatewayWith(90, { one: 0 });
    gateway.isBack('one');
    gateway.pass(2, null);
    gateway.leaves('one');
    gateway.pass(60, null);
    gateway.isBack('one');
    gateway.isDraining = true;
    gateway.pass(60, null);
    expect(gateway.moves).toEqual([]);
  });
});
