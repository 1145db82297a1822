import { expect, it } from 'vitest';
import { coveringNames } from '../../../src/gateway/endpoints/domain-names.ts';
import { EndpointIndex, LabeledIndex } from '../../../src/gateway/endpoints/endpoint-index.ts';
import { newestOfLargestShare } from '../../../src/gateway/endpoints/endpoint-owner.ts';
import {
  type LabeledUpstream,
  matchesSelector,
  type OnlineEndpoint,
} from '../../../src/gateway/endpoints/online-endpoint.ts';
import { seeded } from '../../support/seeded.ts';

const next = seeded(1);
const random = (end: number): number => Math.floor(next() * end);
const oneOf = <T>(all: readonly T[]): T => all[random(all.length)] as T;

const CREDENTIALS = ['cr_1', 'cr_2', 'cr_3', 'cr_4'];
const NAMES = ['a.test', 'b.a.test', '*.a.test', '*.b.a.test', 'ba.test', 'test', 'x.b.a.test', 'other.example'];
const STEPS = 10_000;
/** How often an index is compared with a walk through all. */
const COMPARED = 200;

const anyPolicy = () => ({ admission: random(4) === 0 ? { everyone: true } : null });
let ids = 0;
const owner = () => ({ credential: { id: oneOf(CREDENTIALS) } });
function anyEndpoint(): OnlineEndpoint {
  ids += 1;
  const protocol = oneOf(['https', 'tls', 'tcp', 'http']);
  const place = { host: oneOf(NAMES), protocol, internal: random(4) === 0, ...(random(8) === 0 && { isCloud: true }) };
  return {
    url: `${protocol}://${place.host}`,
    publicId: `ep_${random(100)}_${ids}`,
    owner: owner(),
    policy: anyPolicy(),
    ...place,
  } as unknown as OnlineEndpoint;
}

it('endpoints are found as in a walk through all of them, after 10,000 additions and removals', () => {
  const index = new EndpointIndex();
  const all = new Set<OnlineEndpoint>();
  for (let step = 1; step <= STEPS; step += 1) {
    const gone = random(2) === 0 ? [...all][random(all.size)] : undefined;
    if (gone) expect(index.delete(gone)).toBe(all.delete(gone));
    else {
      const endpoint = anyEndpoint();
      index.add(endpoint);
      all.add(endpoint);
    }
    const changed = [...all, ...(gone ? [gone] : [])][random(all.size + 1)];
    if (changed && !changed.isCloud) index.notePolicy(Object.assign(changed, { policy: anyPolicy() }));
    if (step % COMPARED === 0) expectSame(index, [...all]);
  }
  for (const endpoint of all) index.delete(endpoint);
  expectSame(index, []);
});

function expectSame(index: EndpointIndex, all: readonly OnlineEndpoint[]): void {
  const agents = all.filter(({ isCloud }) => !isCloud);
  const byId = [...agents].sort((a, b) => (a.publicId < b.publicId ? 1 : -1));
  const bound = `ep_${random(100)}`;
  expect([...index.all]).toEqual(all);
  expect(index.size).toBe(all.length);
  expect([...index.below(null)]).toEqual(byId);
  expect([...index.below(bound)]).toEqual(byId.filter(({ publicId }) => publicId < bound));
  expect(new Set(index.withPeople)).toEqual(new Set(agents.filter(({ policy }) => policy.admission !== null)));
  for (const each of all.slice(0, 20)) expect(index.withId(each.publicId)).toBe(each);
  for (const id of CREDENTIALS) {
    expect([...index.ofCredential(id)]).toEqual(agents.filter((each) => each.owner.credential.id === id));
    const tcp = agents.filter(({ protocol, internal }) => protocol === 'tcp' && !internal);
    const walked = newestOfLargestShare(tcp, (each) => each.owner.credential.id, id);
    // Of several authtokens that have most, either may give one up.
    const isNone = index.newestTcpOfLargestShare(id) === null;
    expect(isNone).toBe(walked === null);
  }
  for (const domain of NAMES) {
    const url = `https://${domain}`;
    expect([...index.withUrl(url)]).toEqual(all.filter((each) => each.url === url));
    const covered = agents.filter(({ host }) => host === domain || coveringNames(host).includes(domain));
    expect(new Set(index.covered(domain))).toEqual(new Set(covered));
  }
  for (const protocol of ['https', 'tls', 'tcp', 'http'])
    expect(index.countsOfAgents.get(protocol) ?? 0).toBe(agents.filter((each) => each.protocol === protocol).length);
}

it('labelled tunnels are found as in a walk through all of them, after 10,000 additions and removals', () => {
  const index = new LabeledIndex();
  const all = new Set<LabeledUpstream>();
  const anyLabels = () =>
    Object.fromEntries(['site', 'kind', 'floor'].flatMap((name) => (random(3) === 0 ? [] : [[name, `${random(3)}`]])));
  for (let step = 1; step <= STEPS; step += 1) {
    const gone = random(2) === 0 ? [...all][random(all.size)] : undefined;
    if (gone) expect(index.delete(gone)).toBe(all.delete(gone));
    else {
      ids += 1;
      const tunnel = { publicId: `tn_${random(100)}_${ids}`, labels: anyLabels(), owner: owner() };
      index.add(tunnel as unknown as LabeledUpstream);
      all.add(tunnel as unknown as LabeledUpstream);
    }
    if (step % COMPARED > 0) continue;
    const selector = anyLabels();
    expect(index.matching(selector)).toEqual([...all].filter(({ labels }) => matchesSelector(labels, selector)));
    expect([...index.all]).toEqual([...all]);
    expect([...index.below(null)]).toEqual([...all].sort((a, b) => (a.publicId < b.publicId ? 1 : -1)));
  }
});
