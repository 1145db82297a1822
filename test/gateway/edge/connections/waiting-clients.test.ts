import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { WaitingClients } from '../../../../src/gateway/edge/connections/waiting-clients.ts';
import { LostAddresses } from '../../../../src/gateway/endpoints/endpoint-registry.ts';
import { EdgeCounters } from '../../../../src/gateway/metrics/edge-counters.ts';
import { settle } from '../../../support/until.ts';

const PLACES = 4;

let lost: LostAddresses;
let counters: EdgeCounters;
let waiting: WaitingClients;
beforeEach(() => {
  lost = new LostAddresses();
  counters = new EdgeCounters();
  waiting = new WaitingClients({ endpoints: { lost }, counters }, PLACES);
  waiting.start();
  onTestFinished(() => waiting.stop());
});

interface Client {
  address: string;
  result: boolean | null;
  leave(): void;
}

/** A client that begins to wait for an address of an authtoken. */
function wait(address: string, credentialId = 'cr_1', place = `tls ${credentialId}.localhost`): Client {
  if (!lost.at(place)) lost.note({ place, credentialId, needsHandshake: false }, 'lost');
  const client: Client = { address, result: null, leave: () => {} };
  const known = lost.at(place);
  if (known === undefined) throw new Error('it is not lost');
  const onLeave = (leave: () => void) => {
    client.leave = leave;
  };
  void waiting.wait(known, address, onLeave).then((result) => {
    client.result = result;
  });
  return client;
}

const resultsOf = (clients: Client[]) => clients.map(({ result }) => result);

it('lets all clients of an address go on once it is online, and no others', async () => {
  const [mine, others] = [[wait('10.0.0.1'), wait('10.0.0.2')], [wait('10.0.0.3', 'cr_2')]];
  lost.found('tls cr_1.localhost');
  await settle();
  expect([resultsOf(mine), resultsOf(others), counters.waiting]).toEqual([[true, true], [null], 1]);
});

it('takes a place from the client network with the most for a client of another one', async () => {
  const crowd = [1, 2, 3, 4].map(() => wait('10.0.0.1'));
  const [first, second] = [wait('10.0.0.2'), wait('10.0.0.3')];
  await settle();
  expect(resultsOf(crowd)).toEqual([null, null, false, false]);
  expect(resultsOf([first, second])).toEqual([null, null]);
  // None has at least two more than this one.
  const third = wait('10.0.0.2');
  await settle();
  expect([third.result, counters.waiting]).toEqual([false, PLACES]);
});

it('takes a place from the authtoken with the most when every client network has few', async () => {
  const crowd = [1, 2, 3, 4].map((number) => wait(`10.0.1.${number}`));
  const other = wait('10.0.0.2', 'cr_2');
  await settle();
  expect(resultsOf(crowd)).toEqual([null, null, null, false]);
  expect(other.result).toBeNull();
});

it('gives the place of a client back that has left', async () => {
  const clients = [1, 2, 3, 4].map((number) => wait(`10.0.1.${number}`));
  clients[0]?.leave();
  const next = wait('10.0.1.5');
  await settle();
  expect(resultsOf([...clients, next])).toEqual([false, null, null, null, null]);
  expect(counters).toMatchObject({ waiting: PLACES, waits: { served: 0, unavailable: 0, left: 1 } });
});

it('lets nobody wait once it has stopped', async () => {
  const before = wait('10.0.0.1');
  waiting.stop();
  const after = wait('10.0.0.1');
  await settle();
  expect([before.result, after.result, counters.waiting]).toEqual([false, false, 0]);
});
