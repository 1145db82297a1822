import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { AgentProcess } from '../support/agent-process.ts';
import type { Lab } from './lab.ts';

/** Runs with the address of the local API of an agent that is connected to the lab's gateway. */
export async function withAgent<T>(lab: Lab, sources: string, use: (url: string) => Promise<T>): Promise<T> {
  const folder = join(sources, 'device');
  mkdirSync(folder);
  const agent = AgentProcess.start(folder, {
    NGROK_AUTHTOKEN: lab.authtoken,
    NGROK_SERVER_ADDR: `connect.${lab.domain}:443`,
    NGROK_CA_CERT: lab.caFile,
  });
  try {
    return await use(await agent.ready());
  } finally {
    await agent.end();
  }
}
