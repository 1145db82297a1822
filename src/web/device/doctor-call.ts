import type { PageFinding } from '../../agent/api/page/page-routes.ts';
import { call } from '../ui/api.ts';

export type Finding = PageFinding;

/** Runs the checks of `device-agent doctor` on the device; takes up to ten seconds. */
export async function runDoctor(): Promise<Finding[]> {
  return (await call<{ findings: Finding[] }>('POST', '/page/doctor')).findings;
}
