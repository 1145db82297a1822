import { isCelMap } from '@bufbuild/cel';
import { z } from 'zod';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { jsonOf } from '../cel/values.ts';
import { PolicyFailure } from '../policy-errors.ts';
import type { Subject } from '../policy-subjects.ts';
import type { PreparedAction } from '../steps.ts';

const LogConfig = z.strictObject({ metadata: z.record(z.string(), z.unknown()) });

export function log(config: unknown, context: ActionContext): PreparedAction {
  const metadataIn = context.value(parseConfig(LogConfig, config).metadata, 'config.metadata');
  const run = (subject: Subject) => {
    const value = metadataIn(context.scopeOf(subject));
    if (!isCelMap(value)) throw new PolicyFailure('ERR_NGROK_2300', 'metadata must be a map');
    const metadata = jsonOf(value) as Record<string, unknown>;
    context.ports.onLog({
      endpointId: subject.endpoint.id,
      clientIp: subject.connection.clientIp,
      place: context.place,
      metadata,
    });
    context.record(subject, 'log', { metadata });
    return undefined;
  };
  return { ends: false, on_tcp_connect: () => run, on_http_request: () => run, on_http_response: () => run };
}
