import { z } from 'zod';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { refusal } from '../policy-errors.ts';
import type { Subject } from '../policy-subjects.ts';
import type { PreparedAction } from '../steps.ts';

const MAX_VARIABLES = 50;

const SetVarsConfig = z.strictObject({
  vars: z.union(
    [z.array(z.record(z.string(), z.unknown())).min(1).max(MAX_VARIABLES), z.record(z.string(), z.unknown())],
    {
      error: 'must be a list of maps with one entry each',
    },
  ),
});

export function setVars(config: unknown, context: ActionContext): PreparedAction {
  const { vars } = parseConfig(SetVarsConfig, config);
  if (!Array.isArray(vars)) context.warn('config.vars: must be a list of maps with one entry each');
  const entries = Array.isArray(vars) ? vars : Object.entries(vars).map(([name, value]) => ({ [name]: value }));
  const assignments = entries.map((entry, at) => {
    const [only, ...more] = Object.entries(entry);
    const field = `config.vars[${at}]`;
    if (!only || more.length > 0) throw refusal('ERR_NGROK_2252', 'must have exactly one entry', field);
    const [name, value] = only;
    if (!/^[A-Za-z_]\w{0,127}$/.test(name))
      throw refusal('ERR_NGROK_2252', `${name} is not a valid variable name`, field);
    const valueIn = context.value(value, `${field}.${name}`);
    context.policy.vars[context.phase].add(name);
    return { name, valueIn };
  });
  const run = (subject: Subject) => {
    const scope = context.scopeOf(subject);
    for (const { name, valueIn } of assignments) scope.setVariable(name, valueIn(scope));
    return undefined;
  };
  return { ends: false, on_tcp_connect: () => run, on_http_request: () => run, on_http_response: () => run };
}
