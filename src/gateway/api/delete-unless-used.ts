import { isConstraint } from '../store/database-problems.ts';
import { refuse } from './refuse.ts';

/** Turns the database's refusal to delete what others refer to into the API's. */
export function deleteUnlessUsed(remove: () => void, code: number, message: string): void {
  try {
    remove();
  } catch (error) {
    if (isConstraint(error, 'FOREIGNKEY')) throw refuse(400, code, message);
    throw error;
  }
}
