import { randomUUID } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Tunnel } from '../../src/agent/tunnels/tunnel.ts';
import { tunnelsCodec } from '../../src/agent/tunnels/tunnels-file.ts';

type Given = Partial<Tunnel> & Pick<Tunnel, 'domain' | 'forwards_to' | 'url'>;

/** Writes tunnels where an agent that starts in the folder finds them. */
export function persistTunnels(folder: string, given: readonly Given[]): void {
  const tunnels = given.map((tunnel) => ({
    id: randomUUID(),
    protocol: 'http' as const,
    policy: null,
    created_at: new Date().toISOString(),
    ...tunnel,
  }));
  mkdirSync(join(folder, 'data'), { recursive: true, mode: 0o700 });
  writeFileSync(join(folder, 'data', 'tunnels.json'), tunnelsCodec.encode({ version: 1, tunnels }));
}
