import { diagnose } from '../doctor/diagnose.ts';
import { renderReport, wantsColor } from '../doctor/report.ts';
import { OperatorError } from '../lib/errors.ts';
import { createLog } from '../lib/log.ts';
import { loadManagementSettings, loadSettings, type Settings } from '../settings.ts';
import { VERSION } from '../version.ts';

/**
 * Prints what is wrong with this device, or that nothing is, and ends the process: 0 when nothing is, 1 otherwise.
 *
 * @param options.json a list for programs instead of a screen for people
 */
export async function doctor(options: { json?: boolean }): Promise<void> {
  const log = await createLog('silent', 'json');
  const findings = await diagnose(settingsOrError(), { log, dateFrom: managementApi() });
  const isSound = findings.every(({ status }) => status !== 'failed');
  const text = options.json
    ? JSON.stringify({ ok: isSound, version: VERSION, findings }, null, 2)
    : renderReport(findings, wantsColor(process.stdout, process.env));
  await new Promise((resolve) => process.stdout.write(`${text}\n`, resolve));
  // A check that gave up may have left a connection attempt behind, and nothing waits for that.
  process.exit(isSound ? 0 : 1);
}

function settingsOrError(): Settings | Error {
  try {
    return loadSettings();
  } catch (error) {
    if (error instanceof OperatorError) return error;
    throw error;
  }
}

function managementApi(): string | null {
  try {
    return loadManagementSettings().apiUrl;
  } catch (error) {
    if (error instanceof OperatorError) return null; // what is wrong there is said with all other settings
    throw error;
  }
}
