import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { startTestGateway } from '../support/gateway.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** Runs the rest of the command line in a terminal, whose output it prints. */
const IN_TERMINAL = ['sh', '-c', 'exec script -qfec "echo \\$\\$ > pid; exec $*" /dev/null', 'sh'];

it('the SDK prints nothing on the terminal when a session is lost, but the agent does', async () => {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const env = {
    AGENT_CONNECTOR: 'sdk',
    AGENT_GATEWAY: 'remote',
    NGROK_SERVER_ADDR: gateway.sessionAddress,
    NGROK_CA_CERT: gateway.caFile,
    NGROK_AUTHTOKEN: gateway.authtoken,
    TERM: 'xterm',
  };
  const folder = temporaryFolder();
  const agent = AgentProcess.inTest(folder, env, [], IN_TERMINAL);
  let shown = '';
  agent.child.stdout?.on('data', (bytes) => {
    shown += String(bytes);
  });
  await agent.ready();
  await agent.logged('session online');
  // Written for people on a terminal only, on standard error.
  await expect.poll(() => shown).toContain('No tunnels yet. In another terminal');
  const from = agent.lines.length;
  for (const session of gateway.sessions.sessions) session.end(new Error('ended by the test'));
  await agent.logged('session lost', from);
  await agent.logged('session online', from);
  const closed = once(agent.child, 'close');
  process.kill(Number(readFileSync(join(folder, 'pid'), 'utf8')));
  expect(await closed).toEqual([0, null]);
  // The log is still written at the end.
  expect(shown).toContain('"msg":"stopped"');
  expect(shown).toContain('"msg":"session lost"');
  expect(shown).not.toContain('Aborting connection');
});
