"use strict";
/**
 * DuckDB's addon as the executable has it. The build puts this module in the place of
 * @duckdb/node-bindings, which looks for the addon in node_modules.
 */
const { addon } = require("./addon.ts");

process.dlopen(module, addon.path);
