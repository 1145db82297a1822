import { isConstraint } from '../store/sql/database-problems.ts';
import { refuse } from './refuse.ts';

/** Deletes a row, and refuses with an API error when other rows still refer to it. */
export function deleteUnlessUsed(remove: () => void, code: number, message: string): void {
  try {
    remove();
  } catch (error) {
    if (isConstraint(error, 'FOREIGNKEY')) throw refuse(400, code, message);
    throw error;
  }
}
