import { readFileSync } from 'node:fs';
import { hasErrno } from '../lib/errors.ts';
import type { Host } from './host.ts';
import { type Service, settingsFileOf, stateFolderOf } from './service.ts';

/**
 * Builds the environment that the unit gives to the service. Requires root, as it reads the authtoken.
 *
 * @throws the system's error when the authtoken's file is unreadable
 */
export function serviceEnvironment(service: Service, { root }: Pick<Host, 'root'>): Record<string, string> {
  const { environment, credential } = service;
  const authtoken = credential && root + credential.file;
  return {
    ...Object.fromEntries(environment.map((line) => line.split('=', 2) as [string, string])),
    DATA_DIR: root + stateFolderOf(service),
    SETTINGS_FILE: root + settingsFileOf(service),
    // For a missing or empty file, the unit creates an empty credential, which counts as unset.
    ...(authtoken !== null && !isBlank(authtoken) && { NGROK_AUTHTOKEN_FILE: authtoken }),
  };
}

function isBlank(file: string): boolean {
  try {
    return readFileSync(file, 'utf8').trim() === '';
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return true;
    throw error;
  }
}
