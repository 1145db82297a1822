import { writeFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Tunnel } from '../../src/agent/tunnels/tunnel.ts';
import { tunnelsCodec } from '../../src/agent/tunnels/tunnels-file.ts';
import { diagnose, type Surroundings } from '../../src/doctor/diagnose.ts';
import type { Finding } from '../../src/doctor/finding.ts';
import { loadSettings } from '../../src/settings/agent-settings.ts';
import { silentLog } from '../support/silent-log.ts';

/** Findings by check. */
export type Examined = (check: string) => Pick<Finding, 'status' | 'detail' | 'advice'>[];

/** Examines a device with this working folder and environment; AGENT_PORT is a free port by default. */
export async function examine(
  folder: string,
  env: Record<string, string> = {},
  surroundings: Partial<Surroundings> = {},
): Promise<Examined> {
  const ports = { AGENT_PORT: '0', GATEWAY_HTTP_PORT: '0', GATEWAY_HTTPS_PORT: '0' };
  const settings = loadSettings({ ...ports, ...env }, folder);
  const findings = await diagnose(settings, { log: silentLog, patience: 6, ...surroundings });
  return (check) =>
    findings
      .filter((finding) => finding.check === check)
      .map(({ status, detail, advice }) => ({ status, detail, advice }));
}

/** Stores tunnels like an agent. */
export async function keepTunnels(folder: string, tunnels: Partial<Tunnel>[]): Promise<void> {
  await mkdir(join(folder, 'data'), { recursive: true, mode: 0o700 });
  const stored = tunnels.map((tunnel, at) => ({
    id: `id-${at}`,
    protocol: 'http',
    forwards_to: 'localhost:8001',
    domain: 'cam.localhost',
    url: `https://${tunnel.domain ?? 'cam.localhost'}`,
    policy: null,
    created_at: '2026-01-01T00:00:00.000Z',
    ...tunnel,
  }));
  writeFileSync(join(folder, 'data', 'tunnels.json'), tunnelsCodec.encode({ version: 1, tunnels: stored }));
}
