import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { FlakyProxy } from '../support/flaky-proxy.ts';
import { agentSettings, getPublic, startTestGateway } from '../support/gateway.ts';
import { listening } from '../support/loopback.ts';
import { seeded } from '../support/seeded.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { rounds } from './rounds.ts';

const KILLS = rounds({ short: 6, full: 30 });
/** What is asked for beside a kill is less than what is set aside of it: a busy disk may write none of it down meanwhile. */
const LIMIT = 4e6;
const [SMALL, LARGE] = [6_000, 24_000];

it('an agent that is killed at any moment has never counted less than has passed, and stays within its budget', async () => {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const port = await listening(createServer((req, res) => res.end(Buffer.alloc(req.url === '/large' ? LARGE : SMALL))));
  const link = await FlakyProxy.start(() => gateway.sessionAddress);
  onTestFinished(() => link.close());
  let passed = 0;
  link.watch = () => (_, piece) => {
    passed += piece.length;
    return null;
  };
  const folder = temporaryFolder();
  const settings = {
    AGENT_DATA_BUDGET: `${LIMIT / 1000}kB/day`,
    AGENT_CONNECTOR: 'native',
    NGROK_SERVER_ADDR: link.address,
  };
  const start = () => AgentProcess.inTest(folder, { ...agentSettings(gateway), ...settings });
  const used = () => {
    const { counted, spare } = JSON.parse(readFileSync(join(folder, 'data', 'data-budget.json'), 'utf8'));
    return counted + spare;
  };
  const random = seeded(11);
  let agent = start();
  const body = JSON.stringify({ forwards_to: `http://127.0.0.1:${port}`, domain: 'cam.localhost' });
  const headers = { 'content-type': 'application/json' };
  await fetch(`${await agent.ready()}/tunnels`, { method: 'POST', headers, body });
  for (let kill = 0; kill < KILLS; kill++) {
    const asked = Array.from({ length: 4 }, () => getPublic(gateway, 'https://cam.localhost').catch(() => null));
    await delay(random() * 120);
    await agent.end('SIGKILL');
    await Promise.all(asked);
    expect(used(), `kill ${kill}`).toBeGreaterThanOrEqual(passed);
    agent = start();
    await Promise.race([agent.ready().catch(() => null), agent.logged('data budget level changed')]);
  }
  // To the end of what tunnels have.
  const isOver = () => agent.lines.some(({ budget }) => budget === 'paused' || budget === 'spent');
  for (let count = 0; count < 300 && !isOver(); count++)
    await Promise.race([getPublic(gateway, 'https://cam.localhost/large').catch(() => null), delay(1_000)]);
  expect(isOver()).toBe(true);
  expect(used()).toBeGreaterThanOrEqual(passed);
  expect(passed).toBeGreaterThan(0.2 * LIMIT);
  expect(passed).toBeLessThanOrEqual(LIMIT);
}, 300_000);
