"""x"""
import typer
command = typer.Typer()
