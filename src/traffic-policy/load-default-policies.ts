import { readFile } from 'node:fs/promises';
import { messageOf, OperatorError } from '../lib/errors.ts';
import { JsonTextError, parseJson } from '../lib/json-text.ts';
import { problemList, validationMessage } from '../lib/validation-messages.ts';
import { PolicyInput } from './document.ts';

/**
 * Reads the policies for tunnels without their own.
 *
 * @throws {OperatorError} naming the file, the place and the problem
 */
export async function loadDefaultPolicies(path: string): Promise<PolicyInput> {
  const fail = (problem: string, cause: unknown) =>
    new OperatorError(`cannot load the default policies from ${path}: ${problem}`, 1, { cause });
  let content: unknown;
  try {
    content = parseJson(await readFile(path, 'utf8'));
  } catch (error) {
    throw fail(error instanceof JsonTextError ? `not JSON, ${error.message}` : messageOf(error), error);
  }
  const parsed = PolicyInput.safeParse(content, { error: validationMessage });
  if (parsed.success) return parsed.data;
  throw fail(problemList(parsed.error).join('; '), parsed.error);
}
