import { createInterface } from 'node:readline';
import { OperatorError } from '../lib/errors.ts';
import { prompt } from './output.ts';

/** In place of a secret on the command line, which all users of the machine can read: it comes from standard input. */
export const STANDARD_INPUT = '-';

/**
 * Reads a secret from the first line of standard input.
 *
 * @param name what a terminal asks for
 * @throws {OperatorError} exit code 2, with `missing`, when there is no line
 */
export async function secretFromInput(name: string, missing: string): Promise<string> {
  if (process.stdin.isTTY) prompt(`${name}: `);
  const lines = createInterface({ input: process.stdin });
  for await (const line of lines) {
    lines.close();
    return line.trim();
  }
  throw new OperatorError(missing, 2);
}
