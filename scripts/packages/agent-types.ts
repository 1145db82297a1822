import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Plugin } from 'rolldown';
import { isolatedDeclarationSync } from 'rolldown/experimental';
import { NamedSchemas, reachableFiles } from '../../packaging/schema-types.ts';
import { CreatedTunnel, TunnelDetail } from '../../src/agent/api/agent-operations.ts';
import { StatusReport } from '../../src/agent/api/status-report.ts';
import { TunnelChange, TunnelRequest } from '../../src/agent/tunnels/tunnel.ts';
import { PolicyInput, PolicyRule } from '../../src/traffic-policy/document.ts';

/** Interfaces take the place of this file, whose types are inferred from schemas. */
const INFERRED = 'agent/embed-types.d.ts';

/**
 * Writes the types of the agent to embed, which need no zod.
 *
 * @param sources the folder `src`
 */
export function agentTypes(sources: string): Plugin {
  return {
    name: 'agent-types',
    generateBundle() {
      for (const [name, source] of reachableFiles('agent/embed.d.ts', (path) => typesOf(sources, path)))
        this.emitFile({ type: 'asset', fileName: `types/${name}`, source });
    },
  };
}

function typesOf(sources: string, path: string): string {
  if (path === INFERRED) return inferredTypes();
  const file = join(sources, path.replace(/\.d\.ts$/, '.ts'));
  const { code, errors } = isolatedDeclarationSync(file, readFileSync(file, 'utf8'));
  if (errors.length > 0) throw new Error(`${file}: ${errors.map(({ message }) => message).join('; ')}`);
  return code;
}

function inferredTypes(): string {
  const sent = { NewTunnel: TunnelRequest, ChangedTunnel: TunnelChange };
  const answered = { CreatedTunnel, TunnelDetail, StatusReport };
  const schemas = new NamedSchemas(Object.entries({ ...sent, ...answered, TrafficPolicy: PolicyInput, PolicyRule }));
  for (const schema of Object.values(sent)) schemas.use(schema, 'input');
  for (const schema of Object.values(answered)) schemas.use(schema, 'output');
  return `// Generated from the schemas by scripts/packages/agent-types.ts.\n${schemas.interfaces()}`;
}
