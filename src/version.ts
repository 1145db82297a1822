import packageJson from '../package.json' with { type: 'json' };

/** The program's version, as package.json has it; the build puts it in. */
export const VERSION: string = packageJson.version;
