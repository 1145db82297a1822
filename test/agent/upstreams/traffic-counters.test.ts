import { expect, it } from 'vitest';
import { TrafficCounters, TrafficTotals } from '../../../src/agent/upstreams/traffic-counters.ts';

const bytes = (text: string) => Buffer.from(text);
const GET = bytes('GET /a HTTP/1.1\r\nHost: a\r\n\r\n');

it('counts the requests of a kept connection, not its bodies', () => {
  const totals = new TrafficTotals();
  const counters = new TrafficCounters(totals);
  const connection = counters.connection(true);
  connection.fromClient(GET);
  connection.toClient(bytes('HTTP/1.1 200 OK\r\n\r\n'));
  connection.toClient(bytes('body'));
  connection.fromClient(bytes('POST /b HTTP/1.1\r\nExpect: 100-continue\r\n\r\n'));
  connection.toClient(bytes('HTTP/1.1 100 Continue\r\n\r\n'));
  connection.fromClient(bytes('{"a": 1}'));
  connection.fromClient(GET); // still the body
  connection.toClient(bytes('HTTP/1.1 200 OK\r\n\r\n'));
  expect(counters.traffic).toMatchObject({ connections: 1, requests: 2, lastAt: expect.any(Date) });
  expect(totals).toEqual({
    requests: 2,
    bytesIn: counters.traffic?.bytesIn,
    bytesOut: counters.traffic?.bytesOut,
  });
});

it('counts connections of tcp and tls tunnels as requests', () => {
  const counters = new TrafficCounters();
  counters.connection(false).fromClient(bytes('SSH-2.0-client\r\n'));
  counters.connection(false).toClient(bytes('SSH-2.0-server\r\n'));
  expect(counters.traffic).toMatchObject({ connections: 2, requests: 2, bytesIn: 16, bytesOut: 16 });
});

it('reports nothing rather than too little when connections bypass the agent', () => {
  const counters = new TrafficCounters();
  counters.isBypassed = true;
  expect(counters.traffic).toBeNull();
});
