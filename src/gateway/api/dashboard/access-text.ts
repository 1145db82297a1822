import { LineCounter, stringify } from 'yaml';
import { z } from 'zod';
import { messageOf } from '../../../lib/errors.ts';
import { validationMessage } from '../../../lib/validation-messages.ts';
import { refusalOf } from '../../../management/resources/refusal.ts';
import { ACCESS_CHOICES, ACCESS_REQUEST, isSupported, withChosenAccess } from '../../../traffic-policy/access.ts';
import { PolicyInput } from '../../../traffic-policy/document.ts';
import { MAX_ALIASES, readYaml } from '../../../traffic-policy/policy-text.ts';
import { refuse } from '../request.ts';

/** What `POST /dashboard/access` takes: a policy, and who may come in instead. */
export const AccessTextRequest = z.strictObject({
  traffic_policy: z.string().max(64 * 1024),
  ...ACCESS_REQUEST,
  choice: ACCESS_REQUEST.choice.default(null),
});

/** What it answers: the changed policy, and the password in it that was just made. */
export interface AccessText {
  traffic_policy: string;
  password: string | null;
}

export interface AccessChoices {
  choices: readonly string[];
}

export const accessChoices = (): AccessChoices => ({ choices: ACCESS_CHOICES.filter(isSupported) });

/** @throws {ApiError} 400 when the policy cannot be read */
export function changeAccess({ traffic_policy: text, ...request }: z.output<typeof AccessTextRequest>): AccessText {
  const { policy, password } = withChosenAccess(readPolicy(text), request);
  const isJson = text.trimStart().startsWith('{');
  const written = isJson ? `${JSON.stringify(policy, null, 2)}\n` : stringify(policy, { aliasDuplicateObjects: false });
  return { traffic_policy: written, password };
}

function readPolicy(text: string): PolicyInput {
  const unreadable = (problem: string) => refuse(400, 215, `traffic_policy: ${problem}; change it by hand`);
  let value: unknown;
  try {
    const document = readYaml(text, new LineCounter());
    if (document.errors[0]) throw document.errors[0];
    value = document.toJS({ maxAliasCount: MAX_ALIASES });
  } catch (error) {
    throw unreadable(messageOf(error));
  }
  const parsed = PolicyInput.safeParse(value, { error: validationMessage });
  if (!parsed.success) throw unreadable(refusalOf(parsed.error).text);
  return parsed.data;
}
