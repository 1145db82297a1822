import { cliPage } from './cli-page.ts';
import { envExample, settingsPage } from './settings-page.ts';

/** The content of every generated file, by its path in the project. */
export function generatedPages(): Record<string, string> {
  return {
    'docs/settings.md': settingsPage(),
    'docs/cli.md': cliPage(),
    '.env.example': envExample(),
  };
}
