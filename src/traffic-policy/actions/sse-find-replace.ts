import { z } from 'zod';
import type { ActionContext } from '../action-context.ts';
import { prepareReplacement, Replacement, replacementsOf } from '../action-parts/find-replace.ts';
import { parseConfig } from '../action-problems.ts';
import { PolicyFailure, refusal } from '../policy-errors.ts';
import type { EventStreamMessage, PolicyRequest, PolicyScope } from '../policy-subjects.ts';
import type { PreparedAction } from '../steps.ts';
import type { TextReplacement } from '../text-replacements.ts';

const FIELDS = ['data', 'retry'] as const;
type Field = (typeof FIELDS)[number];

const SseFindReplaceConfig = z.strictObject({
  replacements: replacementsOf(Replacement.extend({ field: z.string().min(1).optional() })),
});

interface FieldReplacement {
  field: (scope: PolicyScope) => Field;
  replacement: (scope: PolicyScope) => TextReplacement;
}

export function sseFindReplace(config: unknown, context: ActionContext): PreparedAction {
  const { replacements } = parseConfig(SseFindReplaceConfig, config);
  const prepared = replacements.map(({ field, ...item }, at): FieldReplacement => {
    const place = `config.replacements[${at}]`;
    return {
      field: fieldOf(field ?? 'data', `${place}.field`, context),
      replacement: prepareReplacement(item, place, context),
    };
  });
  return {
    ends: false,
    on_event_stream_message: () => (request, message) => replaceIn(request, message),
  };

  async function replaceIn(request: PolicyRequest, message: EventStreamMessage): Promise<undefined> {
    const scope = context.scopeOf(request);
    const matches: object[] = [];
    for (const [replacement_index, { field, replacement }] of prepared.entries()) {
      const name = field(scope);
      const before = message[name];
      if (before === null) continue;
      const { text, matches: found } = await context.ports.replaceIn(before, [replacement(scope)], request);
      message[name] = text;
      for (const each of found) matches.push({ ...each, replacement_index });
    }
    context.record(request, 'sse_find_replace', { replacements: matches });
  }
}

function fieldOf(text: string, place: string, context: ActionContext): (scope: PolicyScope) => Field {
  const template = context.template(text, place);
  const known = (name: string) => FIELDS.find((field) => field === name);
  if (template.constant === null) {
    return (scope) => {
      const field = known(template.text(scope));
      if (!field) throw new PolicyFailure('ERR_NGROK_2222', `${place} must be data or retry`);
      return field;
    };
  }
  const field = known(template.constant);
  if (!field) throw refusal('ERR_NGROK_2222', 'must be data or retry', place);
  return () => field;
}
