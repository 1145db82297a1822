import { loadDefaultPolicies } from '../agent/tunnels/default-policies.ts';
import { messageOf } from '../lib/errors.ts';
import { type Check, check, failed, ok } from './finding.ts';

/** Checks the file of the default policies; the agent does not start without a valid one. */
export function defaultPoliciesCheck(path: string): Check {
  return check('default-policies', 'Default policies', async () => {
    try {
      await loadDefaultPolicies(path);
      return ok(path);
    } catch (error) {
      return failed(messageOf(error), 'correct the file, or unset DEFAULT_POLICIES to use the packaged policies');
    }
  });
}
