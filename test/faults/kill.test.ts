import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { measured } from '../support/measured.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { rounds } from './rounds.ts';

const ROUNDS = rounds({ short: 6, full: 200 });
const WORKERS = 4;
const NAMES = Array.from({ length: 24 }, (_, i) => `kill-${i}.localhost`);

/** The last answer about a domain: created, deleted, or unknown because the agent died first. */
type Known = 'present' | 'absent' | 'unknown';

it(`keeps every answer through ${ROUNDS} kill -9 under load`, { timeout: 60_000 + ROUNDS * 20_000 }, async () => {
  const folder = temporaryFolder();
  const known = new Map<string, Known>(NAMES.map((name) => [name, 'absent']));
  try {
    for (let round = 0; round < ROUNDS; round++) {
      const agent = AgentProcess.start(folder);
      const api = await agent.ready();
      expectAnswersKept(known, await domains(api));
      let killed = false;
      const workers = Array.from({ length: WORKERS }, (_, worker) =>
        change(
          api,
          known,
          NAMES.filter((_name, i) => i % WORKERS === worker),
          () => killed,
        ),
      );
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 150));
      killed = true;
      await agent.end('SIGKILL');
      await Promise.all(workers);
      // The file itself always parses, whatever the agent would make of a damaged one. It appears with the first write.
      const file = join(folder, 'data', 'tunnels.json');
      if (existsSync(file)) JSON.parse(readFileSync(file, 'utf8'));
    }
    const agent = AgentProcess.start(folder);
    expectAnswersKept(known, await domains(await agent.ready()));
    expect(await agent.end()).toBe(0);
    measured({ fault: 'kill -9 of the agent while tunnels are created and deleted', tried: ROUNDS });
  } finally {
  }
});

function expectAnswersKept(known: Map<string, Known>, present: Set<string>): void {
  const lost = NAMES.filter((name) => known.get(name) === 'present' && !present.has(name));
  const risen = NAMES.filter((name) => known.get(name) === 'absent' && present.has(name));
  expect({ lost, risen }).toEqual({ lost: [], risen: [] });
  for (const name of NAMES) known.set(name, present.has(name) ? 'present' : 'absent');
}

async function domains(api: string): Promise<Set<string>> {
  const tunnels = (await (await fetch(`${api}/tunnels`)).json()) as { domain: string }[];
  return new Set(tunnels.map((tunnel) => tunnel.domain));
}

/** Creates and deletes the names at random until the agent is killed. */
async function change(api: string, known: Map<string, Known>, names: string[], over: () => boolean): Promise<void> {
  while (!over()) {
    const name = names[Math.floor(Math.random() * names.length)] ?? '';
    const present = known.get(name) === 'present';
    known.set(name, 'unknown');
    let answer: Response;
    try {
      answer = await (present ? remove(api, name) : create(api, name));
      await answer.arrayBuffer();
    } catch (error) {
      if (over()) return;
      throw error;
    }
    if (!answer.ok) throw new Error(`${present ? 'DELETE' : 'POST'} of ${name}: ${answer.status}`);
    known.set(name, present ? 'absent' : 'present');
  }
}

const create = (api: string, domain: string) =>
  fetch(`${api}/tunnels`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ protocol: 'http', forwards_to: 9, domain }),
  });

const remove = (api: string, domain: string) => fetch(`${api}/tunnels/${domain}`, { method: 'DELETE' });
