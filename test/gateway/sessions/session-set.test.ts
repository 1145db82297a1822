import fc from 'fast-check';
import { expect, it } from 'vitest';
import { SessionSet } from '../../../src/gateway/sessions/session-set.ts';

const name = (kind: string) => fc.integer({ min: 0, max: 3 }).map((number) => `${kind}_${number}`);
const session = fc.record({
  id: name('ts'),
  credential: fc.record({ id: name('cr') }),
  agent: fc.record({ instance: fc.option(name('process')), connectionNumber: fc.integer({ min: 0, max: 1 }) }),
});
type Session = { id: string; credential: { id: string }; agent: { instance: string | null; connectionNumber: number } };

it('sessions are found as in a walk through all of them, after any additions and removals', () => {
  // What is removed is chosen among those that were added.
  const operation = fc.record({ added: session, removed: fc.option(fc.nat()) });
  const operations = fc.array(operation, { minLength: 100, maxLength: 100, size: 'max' });
  fc.assert(
    fc.property(operations, (all) => {
      const set = new SessionSet<Session>();
      let expected: Session[] = [];
      for (const { added, removed } of all) {
        const gone = removed === null ? undefined : expected[removed % (expected.length + 1)];
        expect(set.delete(gone ?? added)).toBe(gone !== undefined);
        expected = expected.filter((one) => one !== gone);
        expectFoundAsIn(expected, set, added);
        set.add(added);
        expected.push(added);
      }
      expect([...set]).toEqual(expected);
      expect(set.size).toBe(expected.length);
    }),
    { numRuns: 100 },
  );
});

function expectFoundAsIn(all: readonly Session[], set: SessionSet<Session>, wanted: Session): void {
  const { id, credential, agent } = wanted;
  const isOfCredential = (one: Session) => one.credential.id === credential.id;
  const isSameAgent = (one: Session) =>
    one.id === id || (agent.instance !== null && one.agent.instance === agent.instance);
  const isReplaced = (one: Session) =>
    isOfCredential(one) && isSameAgent(one) && one.agent.connectionNumber === agent.connectionNumber;
  expect([...set.withId(id)]).toEqual(all.filter((one) => one.id === id));
  expect([...set.ofCredential(credential.id)]).toEqual(all.filter(isOfCredential));
  expect(new Set(set.replacedBy(wanted))).toEqual(new Set(all.filter(isReplaced)));
  const newestById = new Map(all.map((one) => [one.id, one]));
  const ids = [...newestById.keys()].sort().reverse();
  expect(set.ids).toBe(ids.length);
  const isNewest = (one: Session) => newestById.get(one.id) === one;
  expect([...set.below(null)].every(isNewest)).toBe(true);
  expect([...set.below(null)].map((one) => one.id).join()).toBe(ids.join());
  expect([...set.below(id)].map((one) => one.id).join()).toBe(ids.filter((each) => each < id).join());
  const shareOf = (holder: string) => all.filter((one) => one.credential.id === holder);
  const most = Math.max(0, ...all.map((one) => shareOf(one.credential.id).length));
  const newest = set.newestOfLargestShare(credential.id);
  const share = newest === null ? [] : shareOf(newest.credential.id);
  expect(share.length).toBe(most < shareOf(credential.id).length + 2 ? 0 : most);
  expect(newest).toBe(share.at(-1) ?? null);
}
