import { InvalidArgumentError } from 'commander';
import type { Variable } from '../settings/variable-kinds.ts';

/** Parses an option like the setting of the same kind. */
export function parsed<T>({ parse, allowed }: Variable<T>, text: string): T {
  try {
    return parse(text);
  } catch {
    throw new InvalidArgumentError(`Allowed: ${allowed}.`);
  }
}
